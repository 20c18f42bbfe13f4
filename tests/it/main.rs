//! One test binary: a module per promise.

fn main() {}
