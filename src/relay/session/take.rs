//! A delivery has finished: what follows from it, for its message and for its endpoint.

use tokio::time::Instant;

use super::{LONGEST_WAIT, PAUSED, Session, log};
use crate::{
    limit::Health,
    message::{Lane, Reason, Settlement},
    relay::destination::Finished,
    retry::Action,
    store::Settle,
};

impl Session<'_> {
    /// Decides what follows from a finished delivery.
    pub(super) fn take(&mut self, finished: Finished) {
        let Some(destination) = self.destinations.get_mut(&finished.endpoint) else {
            return;
        };
        let Finished {
            endpoint,
            policy,
            retry,
            mut delivery,
            loaded,
            started,
            outcome,
        } = finished;
        destination.release(&delivery);
        let now = Instant::now();
        let waited = now.duration_since(loaded);
        delivery.age = delivery.age.saturating_add(waited);
        delivery.expires_in = delivery.expires_in.map(|left| left.saturating_sub(waited));
        // The endpoint's own decides what follows for the endpoint, whatever route led to it.
        let retry = retry.as_deref().unwrap_or(&policy.retry);
        let settlement = match &outcome {
            Some(outcome) => retry.settle(&delivery, outcome, self.stage.rng),
            None if delivery.expires_in.is_some_and(|left| left.is_zero()) => {
                Settlement::Dead(Reason::Expired)
            }
            None => Settlement::Release,
        };
        // One that is dead without a request has had those before.
        let attempt = match (&outcome, &settlement) {
            (None, Settlement::Dead(_)) => delivery.attempt() - 1,
            _ => delivery.attempt(),
        };
        if started.is_none() && destination.endpoint.limits == policy.limits {
            destination.bearing.unsent(1);
        }
        if let Some(outcome) = &outcome {
            log::attempt(&endpoint, &delivery, outcome, &settlement);
        }
        // What was at another URL before a reload says nothing of what is at this one.
        let same_place = destination.endpoint.url == policy.url;
        if let Some(outcome) = outcome.as_ref().filter(|_| same_place) {
            destination
                .bearing
                .count(outcome, started.unwrap_or(now), now);
            if Health::of(outcome) == Health::Good && outcome.retry_after.is_none() {
                destination.healthy();
            }
            if policy.retry.action(outcome) == Action::Pause {
                // For all relays with the settle; for this one at once.
                destination.close(now + PAUSED, true);
                let answer = outcome.error.clone();
                let answer = answer.unwrap_or_else(|| outcome.class.to_string());
                self.gone.insert(endpoint.clone(), answer);
            }
            let hint = policy.retry.hint(outcome);
            if !hint.is_zero() {
                destination.close(now + hint.min(LONGEST_WAIT), false);
                self.put_off
                    .entry(endpoint.clone())
                    .or_default()
                    .ask(now + hint);
            }
        }
        let lane = Lane {
            topic: delivery.topic,
            endpoint: delivery.lane_endpoint,
        };
        match settlement {
            Settlement::Delivered => self.stage.summary.delivered += 1,
            Settlement::Retry(delay) | Settlement::PutOff(delay) => {
                self.stage.summary.retried += 1;
                self.lanes.due_in(&lane, delay, now);
            }
            Settlement::Dead(_) => self.stage.summary.dead += 1,
            Settlement::Release => {}
        }
        self.put(Settle {
            lease: delivery.lease,
            id: delivery.id,
            seq: delivery.seq,
            generation: delivery.generation,
            hold: self.destinations.order(&lane).holds(),
            lane,
            key: delivery.key,
            endpoint,
            settlement,
            attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
            outcome,
            started: started.unwrap_or(now),
        });
    }

    pub(super) fn put(&mut self, settle: Settle) {
        let lane_endpoint = settle.lane.endpoint.clone();
        self.unsettled
            .entry(lane_endpoint)
            .or_default()
            .push(settle);
    }

    /// Nothing more is started for this endpoint until then.
    pub(super) fn close(&mut self, endpoint: &str, until: Instant, paused: bool) {
        if let Some(destination) = self.destinations.get_mut(endpoint) {
            destination.close(until, paused);
        }
    }

    /// Takes in all that has finished by now.
    pub(super) fn collect(&mut self) {
        while let Ok(finished) = self.inbox.try_recv() {
            self.take(finished);
        }
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a task panicked; its message is tried again, its neighbours go on");
            }
        }
    }
}
