//! When the database does not answer, and how a session ends.

use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use super::session::{Ended, Session};
use crate::store::Error;

impl Session<'_> {
    pub(super) fn may_call(&self) -> bool {
        self.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    pub(super) fn succeeded(&mut self) {
        if self.retry_at.take().is_some() {
            tracing::info!("the database answers again");
        }
        self.backoff = Duration::ZERO;
    }

    pub(super) fn failed(&mut self, what: &str, error: &Error) {
        self.backoff = (self.backoff * 2).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let wait = self.backoff.mul_f64(self.rng.random_range(0.5..1.0));
        tracing::warn!(what, %error, unsettled = self.unsettled.values().map(Vec::len).sum::<usize>(), "the database failed, trying again");
        self.retry_at = Some(Instant::now() + wait);
    }

    /// Gives back what a claim of unknown end may have taken.
    pub(super) async fn recover(&mut self) -> Result<(), Ended> {
        let known: Vec<i64> = self.leases.keys().copied().collect();
        match self.store.recover(self.me.relay, &known).await {
            Ok(Some(session)) => {
                self.me.session = session;
                self.doubt = false;
                self.succeeded();
                Ok(())
            }
            Ok(None) => {
                tracing::error!(relay = %self.me.relay, "this relay was taken for dead and reaped: registering anew");
                Err(self.give_up().await)
            }
            Err(error) => {
                self.failed("recover", &error);
                Ok(())
            }
        }
    }

    /// SIGTERM: what was not started is given back at once; what is in flight may finish within the grace period.
    pub(super) async fn drain(mut self) -> Ended {
        let deadline = Instant::now() + self.relay.config.grace;
        let reaped = self.reaped.clone();
        self.stopping.send_replace(true);
        tracing::info!(
            in_flight = self.leases.values().sum::<usize>(),
            "stopping: no more claims"
        );
        while !self.leases.is_empty() {
            if self.may_call() {
                self.collect();
                self.settle().await;
            }
            if self.leases.is_empty() {
                break;
            }
            let wake = self.retry_at.unwrap_or(deadline).min(deadline);
            tokio::select! {
                biased;
                () = reaped.cancelled() => break,
                Some(finished) = self.inbox.recv() => self.take(finished),
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= deadline {
                        break;
                    }
                }
            }
        }
        let left: usize = self.leases.values().sum();
        if left > 0 {
            tracing::warn!(
                messages = left,
                "the grace period is over: stopping requests in flight"
            );
        }
        self.end_tasks().await;
        self.settle().await;
        if let Err(error) = self.store.deregister(self.me.relay).await {
            tracing::warn!(%error, "could not deregister: the other relays will take what is left after a lease time");
        }
        tracing::info!(delivered = self.summary.delivered, "stopped");
        Ended::Done
    }

    /// Stops everything, settles what was delivered (that counts without a lease), gives back the rest.
    pub(super) async fn give_up(&mut self) -> Ended {
        self.stopping.send_replace(true);
        self.end_tasks().await;
        self.settle().await;
        if let Err(error) = self.store.deregister(self.me.relay).await {
            tracing::warn!(%error, "could not give back the leases: they end when this relay is reaped");
        }
        Ended::Anew
    }

    async fn end_tasks(&mut self) {
        self.tasks.shutdown().await;
        self.collect();
    }
}
