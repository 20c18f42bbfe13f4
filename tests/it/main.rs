//! One test binary: a module per promise.
//!
//! Everything in it meets a real PostgreSQL or a real socket. Run it with `scripts/test`, which starts the server.
#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on says where by panicking"
)]

mod formats;
mod lab;
mod smoke;
mod support;
mod verifiers;
