//! What a session does when the database does not answer, or refuses a row.
//!
//! It waits, a little longer each time, and forgets nothing. A row that is refused holds up none of the others.

use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use super::{Session, Void};
use crate::{
    relay::crash::{self, Point},
    store::{Error, Settle},
};

/// So many messages may be stuck before nothing is claimed any more, or memory would fill.
const STUCK: usize = 1000;

/// What is stuck is tried again so often.
const STUCK_WAIT: Duration = Duration::from_secs(2);

impl Session<'_> {
    pub(super) fn may_call(&self) -> bool {
        self.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    pub(super) fn succeeded(&mut self) {
        if self.retry_at.take().is_some() {
            tracing::info!("the database answers again");
        }
        self.on_standby = false;
        self.backoff = Duration::ZERO;
        self.stage.vitals.succeeded(Instant::now());
    }

    pub(super) fn failed(&mut self, what: &str, error: &Error) {
        self.wait_after(what, error);
        self.stage.vitals.failed(Instant::now());
    }

    /// A claim failed. What the server answered is no outage, and it lasts until a claim is answered, whatever else it
    /// does meanwhile.
    pub(super) fn claim_failed(&mut self, what: &'static str, error: &Error) {
        self.wait_after(what, error);
        let now = Instant::now();
        self.stage.vitals.refused(what, error, now);
        if !error.is_answer() {
            self.stage.vitals.failed(now);
        }
    }

    /// Says what happened, and makes no call for a while.
    fn wait_after(&mut self, what: &str, error: &Error) {
        self.backoff = (self.backoff * 2).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let wait = self.backoff.mul_f64(self.stage.rng.random_range(0.5..1.0));
        let unsettled: usize = self.unsettled.values().map(Vec::len).sum();
        let standby = matches!(error, Error::Standby { .. });
        match (standby, std::mem::replace(&mut self.on_standby, standby)) {
            (true, true) => {}
            (true, false) => tracing::warn!(
                what,
                %error,
                unsettled,
                "nothing is delivered until the address of the database leads to a primary: connecting anew until then"
            ),
            (false, _) => {
                tracing::warn!(what, %error, unsettled, "the database failed, trying again");
            }
        }
        self.stage.metrics.failed(what);
        self.retry_at = Some(Instant::now() + wait);
    }

    /// Gives back what a claim of unknown end may have taken.
    pub(super) async fn recover(&mut self) -> Result<(), Void> {
        let known: Vec<i64> = self.leases.keys().copied().collect();
        match self.stage.store.recover(self.me.relay, &known).await {
            Ok(Some(session)) => {
                crash::point(Point::Recovered);
                self.me.session = session;
                self.doubt = false;
                self.succeeded();
                self.look_soon();
                Ok(())
            }
            Ok(None) => {
                tracing::error!(relay = %self.me.relay, "this relay was taken for dead and reaped: registering anew");
                Err(Void)
            }
            Err(error) => {
                self.failed("recover", &error);
                Ok(())
            }
        }
    }

    // === when it refuses a row ===

    /// Returns what could not be settled, but for what is stuck.
    pub(super) async fn settle_batch(
        &mut self,
        lane_endpoint: &str,
        batch: Vec<Settle>,
    ) -> Result<(), Vec<Settle>> {
        let error = match self.settle_once(lane_endpoint, &batch).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        self.refused(lane_endpoint, batch, error).await
    }

    /// The same for what the database did not take.
    pub(super) async fn refused(
        &mut self,
        lane_endpoint: &str,
        batch: Vec<Settle>,
        error: Error,
    ) -> Result<(), Vec<Settle>> {
        match error {
            error if error.is_data() && self.stuck.len() < STUCK => {
                // One row that the database can't take must not hold up the others.
                let mut batch = batch.into_iter();
                while let Some(settle) = batch.next() {
                    let one = std::slice::from_ref(&settle);
                    match self.settle_once(lane_endpoint, one).await {
                        Ok(()) => {}
                        Err(error) if error.is_data() => {
                            self.stage.vitals.turned(Instant::now());
                            tracing::error!(message.id = %settle.id, %error, "this message could not be settled, trying again");
                            self.stuck.push(settle);
                        }
                        Err(error) => {
                            self.failed("settle", &error);
                            return Err(std::iter::once(settle).chain(batch).collect());
                        }
                    }
                }
                Ok(())
            }
            error => {
                self.failed("settle", &error);
                Err(batch)
            }
        }
    }

    /// Tries again what is stuck, from time to time.
    pub(super) async fn settle_stuck(&mut self) {
        let now = Instant::now();
        if self.stuck.is_empty() || now < self.stuck_until {
            return;
        }
        self.stuck_until = now + STUCK_WAIT;
        for settle in std::mem::take(&mut self.stuck) {
            let lane_endpoint = settle.lane.endpoint.clone();
            if !self.may_call() {
                self.stuck.push(settle);
            } else if let Err(rest) = self.settle_batch(&lane_endpoint, vec![settle]).await {
                self.stuck.extend(rest);
            }
        }
    }
}
