//! What all relays share of an endpoint, beside its leases: the tokens of its rate limit, and the state of its breaker.

use std::sync::Arc;

use tokio::time::Instant;

use super::{LONGEST_WAIT, Session};
use crate::{
    limit::{Breaker, Counts, Rate},
    store::BreakerState,
};

impl Session<'_> {
    /// Tells the breakers what was seen, and takes tokens for the next second.
    pub(super) async fn share(&mut self) {
        let now = Instant::now();
        let mut reports: Vec<(Arc<str>, Breaker, Counts)> = Vec::new();
        let mut wants: Vec<(Arc<str>, Rate, i32)> = Vec::new();
        for destination in self.destinations.iter_mut() {
            let name = destination.name.clone();
            if let Some((breaker, counts)) = destination.bearing.due(now) {
                reports.push((name.clone(), breaker, counts));
            }
            if let Some((rate, want)) = destination.bearing.wants_tokens(now) {
                wants.push((name, rate, want));
            }
        }
        for (endpoint, breaker, counts) in reports {
            self.report(&endpoint, &breaker, counts).await;
        }
        for (endpoint, rate, want) in wants {
            self.take_tokens(&endpoint, &rate, want).await;
        }
    }

    async fn report(&mut self, endpoint: &str, breaker: &Breaker, counts: Counts) {
        if !self.may_call() {
            return;
        }
        let (state, open_for) = match self.stage.store.report(endpoint, counts, breaker).await {
            Ok(report) => report,
            Err(error) => return self.failed("report", &error),
        };
        self.succeeded();
        let now = Instant::now();
        let Some(destination) = self.destinations.get_mut(endpoint) else {
            return;
        };
        destination.bearing.reported(state, now);
        if let (BreakerState::Open, Some(wait)) = (state, open_for) {
            tracing::warn!(
                endpoint, failures = counts.failures.round(), successes = counts.successes.round(), open_for = ?wait,
                "the breaker is open: this endpoint fails, and is left alone for a while"
            );
            destination.close(now + wait.min(LONGEST_WAIT), false);
        }
    }

    async fn take_tokens(&mut self, endpoint: &str, rate: &Rate, want: i32) {
        if !self.may_call() {
            return;
        }
        match self.stage.store.take_tokens(endpoint, rate, want).await {
            Ok((taken, next)) => {
                let now = Instant::now();
                self.succeeded();
                if let Some(destination) = self.destinations.get_mut(endpoint) {
                    destination.bearing.got_tokens(taken, next, now);
                }
            }
            Err(error) => self.failed("take_tokens", &error),
        }
    }
}
