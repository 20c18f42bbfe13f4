//! outbox-relay: turns committed PostgreSQL rows into HTTP deliveries.
//!
//! In reading order: the words, what follows from them, the edges, the loop, the doors.
pub mod config;
pub mod delivery;
pub mod maintenance;
pub mod message;
pub mod relay;
pub mod retry;
pub mod route;
pub mod store;
