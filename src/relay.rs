//! The loop.

use std::time::Duration;

/// What the loop needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How this relay is called in history and `status`: the host's (the pod's) name by default.
    pub name: String,
    /// How long a lease outlives its relay.
    pub lease: Duration,
    /// How long new rows can stay unseen while nothing else wakes the relay.
    pub poll: Duration,
    /// Messages in one claim at most.
    pub batch: usize,
    /// Bytes of payload in memory at most, shared evenly by the endpoints.
    pub memory: usize,
    /// After SIGTERM: how long requests in flight may take to finish.
    pub grace: Duration,
    /// A message is dead when relays died with it under their lease more often than this.
    pub max_lost: u32,
}
