//! One test binary: a module per promise.
//!
//! Everything in it meets a real PostgreSQL or a real socket. Run it with `scripts/test`, which starts the server.
#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on says where by panicking"
)]

mod cli;
mod delivery;
mod guest;
mod isolation;
mod lab;
mod layers;
mod loss;
mod outage;
mod patience;
mod relays;
mod smoke;
mod support;
