//! Sends what was traced to a collector, by OTLP over HTTP in its JSON encoding.
//!
//! Model: spans come through a queue of [`QUEUE`] places and go in batches, one request at a time, by the client that deliveries
//! have. Deliveries never wait for it: what finds no place is dropped, and counted. Failure: a batch is tried three times, then
//! dropped, and counted. At the stop what is left is sent within [`FLUSH`].

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod otlp;

use std::time::Duration;

#[cfg(feature = "otlp")]
pub use self::export::export;
use crate::delivery::Endpoint;

/// Spans that wait to be sent, at most.
pub const QUEUE: usize = 4096;

/// After the stop sending may take so long.
pub const FLUSH: Duration = Duration::from_secs(3);

/// Where spans go, and as what.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The collector.
    pub endpoint: Endpoint,
    /// `service.name`.
    pub service: String,
    /// Share of the traces that begin here that is recorded.
    pub sample: f64,
}
