//! The `outbox-relay` binary.

fn main() {}
