//! A delivery has finished: what follows from it, for its message and for its endpoint.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{LONGEST_WAIT, PAUSED, Session, log};
use crate::{
    delivery::Endpoint,
    limit::Health,
    message::{Class, Delivery, Lane, Outcome, Poll, Reason, Settlement},
    relay::{
        destination::{Destination, Finished},
        tracer::Started,
    },
    retry::Action,
    saga,
    store::Settle,
};

/// When this host has no room for a connection, its endpoint is asked again after this.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// What follows for a step of a saga, where it is not what follows for any other message.
fn of_step(delivery: &Delivery, outcome: &Outcome, settlement: Settlement) -> Settlement {
    let Some(step) = &delivery.step else {
        return settlement;
    };
    match settlement {
        // Of what it asked for: that is no word of the business about what it has taken on.
        Settlement::Dead(Reason::Rejected)
            if step.poll.is_some() && outcome.status != Some(422) =>
        {
            Settlement::Dead(Reason::Attempts)
        }
        // Its participant works on it: it says later how that ends, or is asked, or the same is sent again.
        Settlement::Delivered if step.is_begun_by(outcome.status) => {
            let next = match &outcome.poll {
                Some(poll) => Some(poll.after.unwrap_or(saga::POLL)),
                // Its place is the one that was asked at.
                None => step.poll.as_ref().map(|_| saga::POLL),
            };
            Settlement::PutOff(next.map_or(step.lapse(), |next| next.min(step.lapse())))
        }
        settlement => settlement,
    }
}

impl Session<'_> {
    /// Decides what follows from a finished delivery.
    pub(super) fn take(&mut self, finished: Box<Finished>) {
        let Some(destination) = self.destinations.get_mut(&finished.endpoint) else {
            return;
        };
        let Finished {
            endpoint,
            policy,
            retry,
            mut delivery,
            hold,
            loaded,
            started,
            behind,
            again,
            span,
            mut outcome,
            heard,
        } = *finished;
        destination.release(&delivery);
        let now = Instant::now();
        let waited = now.duration_since(loaded);
        delivery.age = delivery.age.saturating_add(waited);
        delivery.expires_in = delivery.expires_in.map(|left| left.saturating_sub(waited));
        // The endpoint's own decides what follows for the endpoint, whatever route led to it.
        let retry = retry.as_deref().unwrap_or(&policy.retry);
        if let (Some(step), Some(outcome)) = (&delivery.step, &mut outcome)
            && step.is_lost_by(outcome.status)
        {
            let (place, after) = (String::new(), None);
            outcome.poll = Some(Arc::new(Poll { place, after }));
        }
        let settlement = match &outcome {
            Some(outcome) => {
                let settlement = retry.settle(&delivery, outcome, self.stage.rng);
                of_step(&delivery, outcome, settlement)
            }
            None if !behind && delivery.expires_in.is_some_and(|left| left.is_zero()) => {
                Settlement::Dead(Reason::Expired)
            }
            // The endpoint has seen its key: fan-out must not give it another one, so the row has to tell of it.
            None if again && delivery.lane_endpoint.is_empty() => {
                Settlement::PutOff(Duration::ZERO)
            }
            None => Settlement::Release,
        };
        // One that is dead without a request has had those before.
        let attempt = match (&outcome, &settlement) {
            (None, Settlement::Dead(_)) => delivery.attempt() - 1,
            _ => delivery.attempt(),
        };
        if destination.endpoint.limits == policy.limits {
            match (started.is_some(), again) {
                (false, false) => destination.bearing.unsent(1),
                (true, true) => destination.bearing.sent_again(1),
                (true, false) | (false, true) => {}
            }
        }
        if let Some(outcome) = &outcome {
            let context = span.as_deref().map(Started::context);
            log::attempt(&endpoint, &delivery, outcome, &settlement, context);
            self.stage.metrics.attempt(&endpoint, outcome.class);
        }
        match (heard, &outcome) {
            (None, Some(outcome)) => {
                self.trace(span, &policy, &delivery, outcome);
                self.hear(&endpoint, &policy, outcome, started.unwrap_or(now));
            }
            (None, None) => {}
            (Some(requests), _) => {
                for request in requests {
                    self.trace(request.span, &policy, &delivery, &request.outcome);
                    self.hear(&endpoint, &policy, &request.outcome, request.started);
                }
                // Its request was broken off: nothing was heard of it.
                if let Some(outcome) = &outcome {
                    self.trace(span, &policy, &delivery, outcome);
                }
                // One message's result can ask for this, too; all else in it is that message's affair.
                if let Some(outcome) = &outcome {
                    self.pause_for(&endpoint, &policy, outcome);
                }
            }
        }
        let lane = Lane {
            topic: delivery.topic,
            endpoint: delivery.lane_endpoint,
        };
        match settlement {
            Settlement::Delivered => {
                self.stage.summary.delivered += 1;
                self.stage.metrics.delivered(&endpoint, delivery.age);
            }
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
            hold,
            lane,
            key: delivery.key,
            endpoint,
            settlement,
            attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
            outcome,
            started: started.unwrap_or(now),
        });
    }

    /// Tells of a request whose first message this is.
    fn trace(
        &self,
        span: Option<Box<Started>>,
        policy: &Endpoint,
        delivery: &Delivery,
        outcome: &Outcome,
    ) {
        if let Some(span) = span {
            let (tracer, metrics) = (self.stage.tracer, self.stage.metrics);
            tracer.end(*span, policy, delivery, outcome, metrics);
        }
    }

    /// Takes in what a request says of its endpoint.
    fn hear(&mut self, name: &Arc<str>, policy: &Endpoint, outcome: &Outcome, started: Instant) {
        self.stage.metrics.request(name, outcome.duration);
        let Some(destination) = self.at_same_place(name, policy) else {
            return;
        };
        let now = Instant::now();
        destination.bearing.count(outcome, started, now);
        if Health::of(outcome) == Health::Good && outcome.retry_after.is_none() {
            destination.healthy();
        }
        if outcome.class == Class::Exhausted {
            // Each try more would be one for nothing.
            destination.close(now + EXHAUSTED, false);
        }
        self.pause_for(name, policy, outcome);
        let hint = policy.retry.hint(outcome);
        if !hint.is_zero()
            && let Some(destination) = self.at_same_place(name, policy)
        {
            destination.close(now + hint.min(LONGEST_WAIT), false);
            let put_off = self.put_off.entry(name.clone()).or_default();
            put_off.ask(now + hint);
        }
    }

    /// Pauses an endpoint where its policy says so.
    fn pause_for(&mut self, name: &Arc<str>, policy: &Endpoint, outcome: &Outcome) {
        if policy.retry.action(outcome) != Action::Pause {
            return;
        }
        let Some(destination) = self.at_same_place(name, policy) else {
            return;
        };
        // For all relays with the settle; for this one at once.
        destination.close(Instant::now() + PAUSED, true);
        let answer = outcome.error.clone();
        let answer = answer.unwrap_or_else(|| outcome.class.to_string());
        self.gone.insert(name.clone(), answer);
    }

    /// What was at another URL before a reload says nothing of what is at this one.
    fn at_same_place(&mut self, name: &str, policy: &Endpoint) -> Option<&mut Destination> {
        let destination = self.destinations.get_mut(name)?;
        (destination.endpoint.url == policy.url).then_some(destination)
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
                for destination in self.destinations.all_held() {
                    destination.hire(&self.desk, &mut self.tasks);
                }
            }
        }
    }
}
