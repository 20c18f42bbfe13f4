//! outbox-relay: turns committed PostgreSQL rows into HTTP deliveries.
//!
//! In reading order, from the words up: what follows from an outcome and where a topic goes (pure), the edges to PostgreSQL
//! and HTTP, the loop that joins them, the wiring, the command line. Imports point down only; a test checks it.

pub mod limit;
pub mod message;
pub mod retry;
pub mod route;

pub mod delivery;
pub mod store;

pub mod maintenance;
pub mod relay;

pub mod app;
pub mod config;

pub mod lab;

pub mod cli;
