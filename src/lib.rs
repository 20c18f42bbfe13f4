//! outbox-relay: turns committed PostgreSQL rows into HTTP deliveries.
//!
//! In reading order, from the words up. Imports point down only; a test checks it.
//!
//! - [`saga`]: what a participant of a saga is told, and what a plan may be
//! - [`message`]: the words of the product
//! - [`retry`]: what follows from an outcome
//! - [`route`]: where a topic goes, in which order, and how it is tried again
//! - [`schedule`]: when a cron expression fires
//! - [`limit`]: what an endpoint may be asked to bear
//! - [`trace`]: which trace an attempt belongs to
//! - [`store`]: PostgreSQL, one method per statement in `sql/`
//! - [`delivery`]: HTTP, one attempt to one outcome
//! - [`metrics`]: what is counted, as Prometheus reads it
//! - [`relay`]: the loop that joins the two; the way of a row is in `relay/session.rs`
//! - [`maintenance`]: partitions and retention; samples of the database; alerts; spans to a collector
//! - [`admin`]: what a relay answers over HTTP
//! - [`config`]: one file and the environment into the types of all the above
//! - [`app`]: the wiring of one run
//! - [`cli`]: the commands
//! - [`lab`]: a throwaway PostgreSQL and a receiver that misbehaves, for the demo and the tests

pub mod limit;
pub mod message;
pub mod retry;
pub mod route;
pub mod saga;
pub mod schedule;
pub mod trace;

pub mod delivery;
pub mod metrics;
pub mod store;

pub mod maintenance;
pub mod relay;

pub mod admin;

pub mod app;
pub mod config;

pub mod lab;

pub mod cli;
