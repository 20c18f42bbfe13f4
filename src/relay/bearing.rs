//! What this relay knows of an endpoint's shared limits: the tokens it holds, and what it has to tell the breaker.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    limit::{Breaker, Counts, Health, Limits, Rate},
    message::Outcome,
    store::{BreakerState, Shared},
};

/// The endpoint's row is written so often at most, unless its burst is smaller than what a second brings. Tokens that were not
/// used for so long are stale: relays that hoard them would send more at once after a pause than the burst allows.
const EVERY: Duration = Duration::from_secs(1);

/// One endpoint's.
#[derive(Debug)]
pub(super) struct Bearing {
    limits: Limits,
    /// To how many in flight it grows after a recovery.
    concurrency: i32,
    /// Requests that may be made before more tokens have to be taken, while these are fresh; less than zero: so many were made
    /// beyond them.
    tokens: i32,
    tokens_at: Instant,
    next_tokens: Instant,
    counts: Counts,
    counted: Instant,
    state: BreakerState,
    /// When the breaker opened or let its probes through: what was sent before says nothing of what is now.
    since: Instant,
    next_report: Instant,
    floor: i64,
}

impl Bearing {
    pub(super) fn new(limits: Limits, concurrency: usize, now: Instant) -> Bearing {
        Bearing {
            limits,
            concurrency: i32::try_from(concurrency).unwrap_or(i32::MAX),
            tokens: 0,
            tokens_at: now,
            next_tokens: now,
            counts: Counts::default(),
            counted: now,
            state: BreakerState::Closed,
            since: now,
            next_report: now,
            floor: 0,
        }
    }

    // === in a claim ===

    /// How many requests the tokens allow; `None` = any number.
    pub(super) fn tokens(&self, now: Instant) -> Option<usize> {
        self.limits
            .rate
            .map(|_| usize::try_from(self.fresh(now)).unwrap_or(0))
    }

    fn fresh(&self, now: Instant) -> i32 {
        if now < self.tokens_at + EVERY {
            self.tokens
        } else {
            0
        }
    }

    /// What a claim tells the database of the limits.
    pub(super) fn shared(&self) -> Shared {
        let breaker = self.limits.breaker.unwrap_or_default();
        let whole = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        Shared {
            max_in_flight: self.limits.max_in_flight.map(whole),
            probes: self.limits.breaker.map(|breaker| whole(breaker.probes)),
            ramp: breaker.ramp.as_secs_f64(),
            ramp_to: self.limits.max_in_flight.map_or(self.concurrency, whole),
            floor: self.floor,
        }
    }

    /// Takes in what a claim brought: so many messages.
    pub(super) fn claimed(
        &mut self,
        taken: usize,
        state: Option<BreakerState>,
        floor: Option<i64>,
        now: Instant,
    ) {
        if state == Some(BreakerState::HalfOpen) && self.state != BreakerState::HalfOpen {
            self.since = now;
        }
        if self.limits.rate.is_some() {
            let taken = i32::try_from(taken).unwrap_or(i32::MAX);
            self.tokens -= taken.min(self.tokens.max(0));
        }
        self.state = state.unwrap_or(self.state);
        self.floor = floor.unwrap_or(self.floor);
    }

    /// So many were claimed and not sent: their tokens are there again.
    pub(super) fn unsent(&mut self, messages: i32) {
        if let Some(rate) = self.limits.rate {
            self.tokens = self.tokens.saturating_add(messages).min(per_second(&rate));
        }
    }

    /// So many were sent a second time after one claim: their tokens are owed.
    pub(super) fn sent_again(&mut self, messages: i32) {
        if self.limits.rate.is_some() {
            self.tokens = self.tokens.saturating_sub(messages);
        }
    }

    // === the rate ===

    /// Whether to ask for tokens now, if there is something to send.
    pub(super) fn wants_tokens(&self, now: Instant) -> bool {
        self.limits.rate.is_some_and(|rate| {
            let enough = per_second(&rate).min(self.concurrency).max(1);
            now >= self.next_tokens && self.fresh(now) < enough
        })
    }

    /// How many to ask for, and how many are brought back with that, which are no longer here; less than zero: so many are owed.
    /// After a pause none are brought back: the bucket has filled up meanwhile.
    pub(super) fn exchange(&mut self, now: Instant) -> Option<(Rate, i32, i32)> {
        let rate = self.limits.rate?;
        let left = std::mem::take(&mut self.tokens);
        let paused = now > self.tokens_at + EVERY + EVERY / 4;
        Some((
            rate,
            per_second(&rate),
            if paused { left.min(0) } else { left },
        ))
    }

    /// So many were taken, the next one is there after `next`. A bucket that holds less than a second's worth is full again
    /// before the second is over: what runs over then would be missing in the rate.
    pub(super) fn got_tokens(&mut self, taken: i32, next: Duration, now: Instant) {
        self.tokens = taken;
        self.tokens_at = now;
        let full = |rate: Rate| EVERY.mul_f64((rate.burst / rate.per_second).min(1.0));
        let wait = match taken {
            0 => next.max(EVERY / 20),
            _ => self.limits.rate.map_or(EVERY, full).max(EVERY / 50),
        };
        self.next_tokens = now + wait;
    }

    /// When tokens may be asked for again, if there are none.
    pub(super) fn next_tokens(&self, now: Instant) -> Option<Instant> {
        (self.limits.rate.is_some() && self.fresh(now) <= 0).then_some(self.next_tokens)
    }

    // === the breaker ===

    /// Counts the outcome of a request that was started then.
    pub(super) fn count(&mut self, outcome: &Outcome, started: Instant, now: Instant) {
        if let Some(breaker) = self.limits.breaker.filter(|_| started >= self.since) {
            self.counts
                .fade(now.duration_since(self.counted), breaker.window);
            self.counted = now;
            self.counts.add(Health::of(outcome));
        }
    }

    /// What is to be told now. A healthy endpoint is not told of at all; a probe's outcome at once.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Breaker, Counts)> {
        let breaker = self.limits.breaker?;
        let news = match self.state {
            BreakerState::Closed | BreakerState::Open => self.counts.failures >= 0.5,
            BreakerState::Watched | BreakerState::HalfOpen => {
                self.counts.failures >= 0.5 || self.counts.successes >= 0.5
            }
        };
        // A burst of failures is told at once, too, or hundreds of messages fail before the second is over.
        let urgent = self.state == BreakerState::HalfOpen
            || self.counts.failures >= f64::from(breaker.minimum);
        (news && (urgent || now >= self.next_report)).then_some((breaker, self.counts))
    }

    /// It was told, and stands so.
    pub(super) fn reported(&mut self, state: BreakerState, now: Instant) {
        self.counts = Counts::default();
        self.next_report = now + EVERY;
        if state == BreakerState::Open && self.state != state {
            self.since = now;
        }
        self.state = match state {
            // There are failures in its window: ours.
            BreakerState::Closed => BreakerState::Watched,
            state => state,
        };
    }
}

/// How many tokens are held at most: what may be sent within a second.
fn per_second(rate: &Rate) -> i32 {
    // The cast saturates.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "bounded by the line before"
    )]
    let tokens = rate.per_second.min(rate.burst).clamp(1.0, 1e6) as i32;
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Class;

    fn bearing(limits: Limits, now: Instant) -> Bearing {
        Bearing::new(limits, 64, now)
    }

    fn outcome(class: Class) -> Outcome {
        let (status, error, response, retry_after) = (None, None, None, None);
        Outcome {
            class,
            status,
            error,
            response,
            retry_after,
            duration: Duration::ZERO,
            exchange: None,
            output: None,
            poll: None,
        }
    }

    #[test]
    fn tokens_are_taken_about_once_a_second_and_spent_by_claims() {
        let now = Instant::now();
        let rate = Rate {
            per_second: 100.0,
            burst: 20.0,
        };
        let mut bearing = bearing(
            Limits {
                rate: Some(rate),
                ..Limits::default()
            },
            now,
        );
        assert_eq!(
            (bearing.tokens(now), bearing.wants_tokens(now)),
            (Some(0), true)
        );
        assert_eq!(bearing.exchange(now), Some((rate, 20, 0)));
        bearing.got_tokens(20, Duration::ZERO, now);
        assert_eq!(
            (bearing.tokens(now), bearing.wants_tokens(now)),
            (Some(20), false)
        );
        bearing.claimed(15, None, None, now);
        assert_eq!(bearing.tokens(now), Some(5));
        assert!(!bearing.wants_tokens(now + EVERY / 6), "a moment ago");
        assert!(bearing.wants_tokens(now + EVERY / 5), "it is full again");
        bearing.unsent(100);
        assert_eq!(bearing.tokens(now), Some(20));
        bearing.claimed(20, None, None, now);
        bearing.got_tokens(0, Duration::from_millis(300), now);
        assert_eq!(
            bearing.next_tokens(now),
            Some(now + Duration::from_millis(300))
        );
    }

    #[test]
    fn tokens_that_were_not_used_are_stale_and_brought_back() {
        let now = Instant::now();
        let rate = Rate {
            per_second: 20.0,
            burst: 20.0,
        };
        let limits = Limits {
            rate: Some(rate),
            ..Limits::default()
        };
        let mut bearing = bearing(limits, now);
        bearing.got_tokens(20, Duration::ZERO, now);
        bearing.claimed(5, None, None, now);
        let later = now + EVERY;
        assert_eq!(bearing.tokens(later - EVERY / 10), Some(15));
        assert_eq!(bearing.next_tokens(later - EVERY / 10), None);
        assert_eq!(
            (bearing.tokens(later), bearing.next_tokens(later)),
            (Some(0), Some(later))
        );
        assert!(bearing.wants_tokens(later));
        assert_eq!(bearing.exchange(later), Some((rate, 20, 15)));
        // The answer never came: they are not brought back twice.
        assert_eq!(bearing.exchange(later), Some((rate, 20, 0)));
        bearing.got_tokens(20, Duration::ZERO, later);
        assert_eq!(bearing.tokens(later), Some(20));
        let much_later = later + 2 * EVERY;
        assert_eq!(bearing.exchange(much_later), Some((rate, 20, 0)), "lost");
        bearing.got_tokens(1, Duration::ZERO, much_later);
        bearing.sent_again(3);
        assert_eq!(bearing.tokens(much_later), Some(0));
        bearing.claimed(1, None, None, much_later);
        assert_eq!(bearing.next_tokens(much_later), Some(much_later + EVERY));
        let at_last = much_later + 5 * EVERY;
        assert_eq!(bearing.exchange(at_last), Some((rate, 20, -2)), "owed");
    }

    #[test]
    fn without_a_rate_there_are_no_tokens_to_count() {
        let now = Instant::now();
        let mut bearing = bearing(Limits::default(), now);
        bearing.claimed(100, None, None, now);
        assert_eq!(
            (
                bearing.tokens(now),
                bearing.wants_tokens(now),
                bearing.next_tokens(now)
            ),
            (None, false, None)
        );
    }

    #[test]
    fn a_healthy_endpoint_is_not_told_of() {
        let now = Instant::now();
        let mut bearing = bearing(
            Limits {
                breaker: Some(Breaker::default()),
                ..Limits::default()
            },
            now,
        );
        for _ in 0..1000 {
            bearing.count(&outcome(Class::Success), now, now);
        }
        assert_eq!(bearing.due(now), None);
        bearing.count(&outcome(Class::Timeout), now, now);
        let (_, counts) = bearing.due(now).unwrap();
        assert!(counts.failures > 0.9 && counts.successes > 999.0);
        bearing.reported(BreakerState::Closed, now);
        assert_eq!(bearing.due(now + EVERY), None);
        bearing.count(&outcome(Class::Success), now, now);
        assert!(
            bearing.due(now).is_none() && bearing.due(now + EVERY).is_some(),
            "it is watched now"
        );
    }

    #[test]
    fn many_failures_and_probes_are_told_at_once() {
        let now = Instant::now();
        let mut bearing = bearing(
            Limits {
                breaker: Some(Breaker::default()),
                ..Limits::default()
            },
            now,
        );
        bearing.reported(BreakerState::Closed, now);
        for _ in 0..19 {
            bearing.count(&outcome(Class::Connect), now, now);
        }
        assert!(bearing.due(now).is_none());
        bearing.count(&outcome(Class::Connect), now, now);
        assert!(bearing.due(now).is_some());
        bearing.reported(BreakerState::Open, now);
        bearing.claimed(1, Some(BreakerState::HalfOpen), None, now);
        assert!(bearing.due(now).is_none());
        bearing.count(&outcome(Class::Success), now, now);
        assert!(bearing.due(now).is_some());
    }

    #[test]
    fn what_was_sent_before_the_breaker_opened_does_not_count_after() {
        let now = Instant::now();
        let later = now + EVERY;
        let mut bearing = bearing(Limits::default(), now);
        bearing.reported(BreakerState::Open, later);
        bearing.count(&outcome(Class::Timeout), now, later);
        assert_eq!(bearing.due(later + EVERY), None);
        bearing.claimed(1, Some(BreakerState::HalfOpen), None, later + EVERY);
        bearing.count(&outcome(Class::Timeout), later, later + EVERY);
        assert_eq!(bearing.due(later + EVERY), None);
        bearing.count(&outcome(Class::Success), later + EVERY, later + EVERY);
        assert!(bearing.due(later + EVERY).is_some());
    }
}
