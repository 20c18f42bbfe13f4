//! What all relays share of an endpoint, beside its leases: the tokens of its rate limit, and the state of its breaker.

use std::sync::Arc;

use tokio::time::Instant;

use super::{LONGEST_WAIT, Session};
use crate::{
    limit::{Breaker, Counts, Rate},
    relay::destination::Bound,
    store::BreakerState,
};

impl Session<'_> {
    /// Tells the breakers what was seen.
    pub(super) async fn report_all(&mut self) {
        let now = Instant::now();
        let mut reports: Vec<(Arc<str>, Breaker, Counts)> = Vec::new();
        for destination in self.destinations.iter_mut() {
            if let Some((breaker, counts)) = destination.bearing.due(now) {
                reports.push((destination.name.clone(), breaker, counts));
            }
        }
        for (endpoint, breaker, counts) in reports {
            self.report(&endpoint, &breaker, counts).await;
        }
    }

    /// Takes tokens for the next second, for the endpoints that have something to be sent.
    pub(super) async fn take_all_tokens(&mut self) {
        if !self.may_call() {
            return;
        }
        let now = Instant::now();
        let open = self.destinations.iter_mut().filter(|to| to.is_open(now));
        let wanting = open.filter(|to| to.bearing.wants_tokens(now));
        let mut wanting: Vec<Arc<str>> = wanting.map(|to| to.name.clone()).collect();
        wanting.retain(|name| {
            let mut due = self.lanes.due(now);
            due.any(|lane| match self.destinations.of(lane) {
                None => false,
                Some(Bound::One(to)) => to.name == *name,
                Some(Bound::Several(route)) => route.endpoints().any(|to| *to == **name),
            })
        });
        for endpoint in wanting {
            let destination = self.destinations.get_mut(&endpoint);
            if let Some((rate, want, back)) = destination.and_then(|to| to.bearing.exchange(now)) {
                self.take_tokens(&endpoint, &rate, want, back).await;
            }
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

    async fn take_tokens(&mut self, endpoint: &str, rate: &Rate, want: i32, back: i32) {
        if !self.may_call() {
            return;
        }
        match self
            .stage
            .store
            .take_tokens(endpoint, rate, want, back)
            .await
        {
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
