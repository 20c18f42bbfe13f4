//! Partitions and retention.

use std::time::Duration;

/// How long history is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Attempts; whole days, as the partitions are.
    pub attempts: Duration,
    /// Payloads of delivered messages, for replay; zero = not kept at all.
    pub delivered: Duration,
}
