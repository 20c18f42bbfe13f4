//! How a session ends: drained when it was stopped, given up when its registration is void.

use tokio::time::Instant;

use super::{Ended, Session};
use crate::relay::{
    crash::{self, Point},
    doorbell::Order,
};

impl Session<'_> {
    /// SIGTERM: what was not started is given back at once; what is in flight may finish within the grace period.
    pub(super) async fn drain(mut self) -> Ended {
        let deadline = Instant::now() + self.plan.config.grace;
        let reaped = self.reaped.clone();
        self.stop_starting();
        // Another relay can keep it at once.
        self.ear.doorbell.order(Order::Leave);
        tracing::info!(
            in_flight = self.leases.values().sum::<usize>(),
            "stopping: no more claims"
        );
        while self.unfinished() {
            if self.may_call() {
                self.collect();
                self.settle().await;
                self.ring().await;
            }
            if !self.unfinished() {
                break;
            }
            // A moment that is past has had its turn.
            let now = Instant::now();
            let wake = self
                .retry_at
                .filter(|at| *at > now)
                .map_or(deadline, |at| at.min(deadline));
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
        self.stuck_until = Instant::now();
        self.settle_stuck().await;
        // Settling opens keys, too.
        self.ear.given_back = true;
        crash::point(Point::Deregister);
        if let Err(error) = self.stage.store.deregister(self.me.relay).await {
            tracing::warn!(%error, "could not deregister: the other relays will take what is left after a lease time");
        }
        self.ring().await;
        tracing::info!(delivered = self.stage.summary.delivered, "stopped");
        Ended::Done
    }

    /// Stops everything, settles what was delivered (that counts without a lease), gives back the rest.
    pub(super) async fn give_up(&mut self) -> Ended {
        self.stop_starting();
        self.end_tasks().await;
        self.settle().await;
        if let Err(error) = self.stage.store.deregister(self.me.relay).await {
            tracing::warn!(%error, "could not give back the leases: they end when this relay is reaped");
        }
        self.ear.given_back = true;
        self.ring().await;
        Ended::Anew
    }

    /// Whether there is something that time may bring to an end.
    pub(super) fn unfinished(&self) -> bool {
        self.leases.values().sum::<usize>() > self.stuck.len()
    }

    /// Gives back what has not started; nothing starts any more.
    fn stop_starting(&mut self) {
        self.stopping.send_replace(true);
        for destination in self.destinations.all_held() {
            destination.give_back();
        }
    }

    async fn end_tasks(&mut self) {
        self.tasks.shutdown().await;
        self.collect();
    }
}
