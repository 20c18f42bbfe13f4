//! What follows from an outcome: pure, so that every line of the policy is a row of a table in the tests.
//!
//! Delays are exponential with full jitter: attempt *n* waits for a uniform draw between the minimum and
//! `min(cap, base · factor^(n-1))`, so that rows that failed together do not come back together, at the cap neither.
//! Decorrelated jitter and a fixed list are there for those who want them. A `Retry-After` can only lengthen a delay, and
//! only up to the cap.

mod backoff;

use std::{collections::BTreeMap, time::Duration};

use rand::Rng;

pub use self::backoff::Backoff;
use crate::message::{Class, Delivery, Outcome, Reason, Settlement};

/// How failed deliveries of an endpoint are tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// How long to wait between two attempts.
    pub backoff: Backoff,
    /// So many attempts, then the message is dead; at least 1.
    pub max_attempts: u32,
    /// A message that failed and is older is dead.
    pub max_age: Duration,
    /// So many times a message may be put off by a 429 without using an attempt.
    pub max_throttled: u32,
    /// What is done about answers and errors, where it is not the default.
    pub actions: Actions,
}

/// What is done about an answer or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It counts as delivered.
    Success,
    /// It is tried again.
    Retry,
    /// It is tried again, later: usually a deployment or a secret is wrong and takes minutes to mend.
    RetryLate,
    /// It is tried again when the receiver wants it; that uses no attempt.
    PutOff,
    /// It is dead at once.
    Dead,
    /// It is tried again, and the endpoint is paused for all relays.
    Pause,
}

/// The exceptions from the default policy, by status, class of statuses (`4xx`) or error class (`timeout`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Actions {
    /// By status.
    pub statuses: BTreeMap<u16, Action>,
    /// By hundreds: 4 means `4xx`.
    pub hundreds: BTreeMap<u16, Action>,
    /// By error class.
    pub classes: BTreeMap<Class, Action>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            backoff: Backoff::default(),
            max_attempts: 20,
            max_age: Duration::from_secs(3 * 24 * 60 * 60),
            max_throttled: 1000,
            actions: Actions::default(),
        }
    }
}

/// How many steps further along the curve a 401, 403 or 404 waits.
const LATE_STEPS: u32 = 6;

/// What a retry window comes to: what `check` prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Attempts that will be made at most.
    pub attempts: u32,
    /// From the first attempt to the last, at the longest.
    pub longest: Duration,
    /// The same at the average draw.
    pub average: Duration,
    /// From this attempt on the delay has reached the cap; `None` if it never does.
    pub capped_from: Option<u32>,
    /// Whether `max_age` ends it before `max_attempts` does, at the longest delays.
    pub ended_by_age: bool,
}

// === impl Policy ===

impl Policy {
    /// What this policy comes to when every attempt fails.
    pub fn window(&self) -> Window {
        let mut window = Window {
            attempts: 1,
            longest: Duration::ZERO,
            average: Duration::ZERO,
            capped_from: None,
            ended_by_age: false,
        };
        for attempt in 1..self.max_attempts {
            if window.longest >= self.max_age {
                window.ended_by_age = true;
                break;
            }
            let (upper, average) = (self.backoff.upper(attempt), self.backoff.average(attempt));
            if upper == self.backoff.cap() && window.capped_from.is_none() {
                window.capped_from = Some(attempt);
            }
            window.attempts += 1;
            window.longest = window.longest.saturating_add(upper);
            window.average = window.average.saturating_add(average);
        }
        window
    }

    /// What is done about `outcome`.
    pub fn action(&self, outcome: &Outcome) -> Action {
        let exception = outcome
            .status
            .filter(|_| outcome.class.is_answer())
            .and_then(|status| {
                let hundreds = || self.actions.hundreds.get(&(status / 100));
                self.actions.statuses.get(&status).or_else(hundreds)
            })
            .or_else(|| self.actions.classes.get(&outcome.class));
        if let Some(action) = exception {
            return *action;
        }
        match outcome.class {
            Class::Success => Action::Success,
            Class::Rejected | Class::Unsendable => Action::Dead,
            Class::Misconfigured => Action::RetryLate,
            Class::Gone => Action::Pause,
            Class::Unavailable if outcome.status == Some(429) => Action::PutOff,
            // It was our fault, and no request was made.
            Class::Exhausted => Action::PutOff,
            Class::Redirect
            | Class::Unavailable
            | Class::Proxy
            | Class::Dns
            | Class::Connect
            | Class::ConnectTimeout
            | Class::Tls
            | Class::Reset
            | Class::Protocol
            | Class::Timeout
            | Class::Aborted
            | Class::Panicked => Action::Retry,
        }
    }

    /// What follows for `delivery` from `outcome`.
    ///
    /// That the endpoint is paused as well, or put off, is the relay's affair. An attempt that we stopped ourselves counts, but
    /// is never the one after which a message is given up.
    pub fn settle(&self, delivery: &Delivery, outcome: &Outcome, rng: &mut impl Rng) -> Settlement {
        let attempt = delivery.attempts.saturating_add(1);
        let mut free = false;
        let delay = match self.action(outcome) {
            Action::Success => return Settlement::Delivered,
            Action::Dead => return Settlement::Dead(Reason::Rejected),
            Action::RetryLate => self.backoff.late(attempt, LATE_STEPS, rng),
            Action::PutOff => {
                free = delivery.throttled < self.max_throttled;
                // Waiting uses no attempt, so it must grow by what was waited already.
                let waited = attempt.saturating_add(delivery.throttled);
                self.backoff.delay(delivery.id, waited, rng)
            }
            Action::Retry => self.backoff.delay(delivery.id, attempt, rng),
            Action::Pause => {
                // It is the endpoint that wants nothing more, whatever the message.
                free = true;
                self.backoff.delay(delivery.id, attempt, rng)
            }
        };
        if delivery.expires_in.is_some_and(|left| left.is_zero()) {
            return Settlement::Dead(Reason::Expired);
        }
        // Nobody answered, for we stopped it: a shutdown must not be what kills a message.
        if outcome.class == Class::Aborted {
            return Settlement::Retry(delay);
        }
        if delivery.age >= self.max_age {
            return Settlement::Dead(Reason::MaxAge);
        }
        let delay = delay.max(self.hint(outcome));
        if free {
            return Settlement::PutOff(delay);
        }
        if attempt >= self.max_attempts {
            return Settlement::Dead(Reason::Attempts);
        }
        Settlement::Retry(delay)
    }

    /// How long the receiver asks to be left alone, up to the cap.
    pub fn hint(&self, outcome: &Outcome) -> Duration {
        outcome
            .retry_after
            .unwrap_or_default()
            .min(self.backoff.cap())
    }
}

#[cfg(test)]
mod tests;
