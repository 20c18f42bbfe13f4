//! Requests that are on their way: counted up when they start, and down however they end.

use prometheus_client::metrics::gauge::Gauge;

use super::{Metrics, to};

/// A request on its way, until this is dropped.
#[derive(Debug)]
pub struct OnTheWay(Gauge);

impl Metrics {
    /// A request is started.
    pub fn on_the_way(&self, endpoint: &str) -> OnTheWay {
        let gauge = self.0.on_the_way.get_or_create(&to(endpoint)).clone();
        gauge.inc();
        OnTheWay(gauge)
    }
}

impl Drop for OnTheWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}
