//! The HTTP edge.

use std::time::Duration;

use reqwest::Url;

use crate::retry;

/// A named HTTP destination with its own policy: the unit of isolation.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its name, by which routes, history and metrics know it.
    pub name: String,
    /// Where its deliveries are posted to; `http` or `https`.
    pub url: Url,
    /// Requests in flight at once from one relay.
    pub concurrency: usize,
    /// From the start of a request to the last byte of its answer.
    pub timeout: Duration,
    /// To be connected, TLS included.
    pub connect_timeout: Duration,
    /// How failures are tried again.
    pub retry: retry::Policy,
}
