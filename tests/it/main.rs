//! One test binary: a module per promise.
//!
//! Everything in it meets a real PostgreSQL or a real socket. Run it with `scripts/test`, which starts the server.
#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on says where by panicking"
)]

mod alerts;
mod api;
mod batches;
mod chart;
mod claim;
mod cli;
mod contract;
mod delivery;
mod details;
mod doorbell;
mod expire;
mod failover;
mod fan_out;
mod faults;
mod formats;
mod guest;
mod headers;
mod health;
mod http2;
mod image;
mod isolation;
mod lab;
mod layers;
mod limits;
mod loss;
mod metrics;
mod migrate;
mod order;
mod outage;
mod outbox;
mod page;
mod partitions;
mod patience;
mod pooler;
mod probe;
mod races;
mod reap;
mod relays;
mod release;
mod reload;
mod requests;
mod resources;
mod rotation;
mod routes;
mod sagas;
mod schedules;
mod secrets;
mod settle;
mod shape;
mod smoke;
mod statements;
mod support;
mod terminal;
mod tls;
mod tracing;
mod verbs;
mod verifiers;
