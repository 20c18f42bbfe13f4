//! What follows from an outcome: pure, so that every line of the policy is a row of a table in the tests below.
//!
//! Delays are exponential with full jitter: attempt *n* waits for a uniform draw between the minimum and
//! `min(cap, base · factor^(n-1))`, so that rows that failed together do not come back together, at the cap neither. A
//! `Retry-After` can only lengthen a delay, and only up to the cap.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::message::{Class, Delivery, Outcome, Reason, Settlement};

/// How failed deliveries of an endpoint are tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The upper end of the first delay.
    pub base: Duration,
    /// By how much the upper end grows with each attempt; at least 1.
    pub factor: f64,
    /// No delay is longer.
    pub cap: Duration,
    /// So many attempts, then the message is dead; at least 1.
    pub max_attempts: u32,
    /// A message that failed and is older is dead.
    pub max_age: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(60 * 60),
            max_attempts: 20,
            max_age: Duration::from_secs(3 * 24 * 60 * 60),
        }
    }
}

/// No retry comes sooner, unless the base itself is shorter.
const MINIMUM: Duration = Duration::from_millis(100);

/// How many steps further along the curve a 401, 403 or 404 waits: a deployment or a secret takes minutes to mend.
const MISCONFIGURED_STEPS: u32 = 6;

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
    /// The longest delay after attempt number `attempt` (from 1). Never beyond the cap, at any number.
    pub fn upper(&self, attempt: u32) -> Duration {
        let steps = f64::from(attempt.max(1) - 1);
        let seconds = self.base.as_secs_f64() * self.factor.max(1.0).powf(steps);
        // An overflow is infinite or not a number; both fail the comparison and mean the cap.
        if seconds < self.cap.as_secs_f64() {
            Duration::from_secs_f64(seconds)
        } else {
            self.cap
        }
    }

    /// The delay after attempt number `attempt` (from 1): full jitter.
    pub fn delay(&self, attempt: u32, rng: &mut impl Rng) -> Duration {
        let upper = self.upper(attempt);
        uniform(MINIMUM.min(upper), upper, rng)
    }

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
            let upper = self.upper(attempt);
            if upper == self.cap && window.capped_from.is_none() {
                window.capped_from = Some(attempt);
            }
            window.attempts += 1;
            window.longest = window.longest.saturating_add(upper);
            window.average = window
                .average
                .saturating_add((upper + MINIMUM.min(upper)) / 2);
        }
        window
    }

    /// What follows for `delivery` from `outcome`.
    ///
    /// 410 is retried like any failure that may pass; that the endpoint is paused as well is the relay's affair. An attempt
    /// that we stopped ourselves counts, but is never the one after which a message is given up.
    pub fn settle(&self, delivery: &Delivery, outcome: &Outcome, rng: &mut impl Rng) -> Settlement {
        let attempt = delivery.attempts.saturating_add(1);
        let delay = match outcome.class {
            Class::Success => return Settlement::Delivered,
            Class::Rejected | Class::Unsendable => return Settlement::Dead(Reason::Rejected),
            Class::Misconfigured => {
                let upper = self.upper(attempt.saturating_add(MISCONFIGURED_STEPS));
                uniform(upper / 2, upper, rng)
            }
            Class::Redirect
            | Class::Unavailable
            | Class::Gone
            | Class::Proxy
            | Class::Dns
            | Class::Connect
            | Class::ConnectTimeout
            | Class::Tls
            | Class::Reset
            | Class::Protocol
            | Class::Timeout
            | Class::Aborted => self.delay(attempt, rng),
        };
        if delivery.expires_in.is_some_and(|left| left.is_zero()) {
            return Settlement::Dead(Reason::Expired);
        }
        // Nobody answered, for we stopped it: a shutdown must not be what kills a message.
        if outcome.class == Class::Aborted {
            return Settlement::Retry(delay);
        }
        if attempt >= self.max_attempts {
            return Settlement::Dead(Reason::Attempts);
        }
        if delivery.age >= self.max_age {
            return Settlement::Dead(Reason::MaxAge);
        }
        let hint = outcome.retry_after.unwrap_or_default().min(self.cap);
        Settlement::Retry(delay.max(hint))
    }
}

fn uniform(low: Duration, high: Duration, rng: &mut impl Rng) -> Duration {
    if low >= high {
        high
    } else {
        rng.random_range(low..=high)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::StdRng};
    use uuid::Uuid;

    use super::*;

    fn delivery(attempts: u32) -> Delivery {
        Delivery {
            lease: 1,
            lane_endpoint: String::new(),
            id: Uuid::nil(),
            topic: "t".into(),
            key: None,
            kind: None,
            body: None,
            content_type: None,
            headers: Vec::new(),
            seq: 1,
            attempts,
            lost: 0,
            generation: 0,
            created_at: String::new(),
            age: Duration::ZERO,
            expires_in: None,
        }
    }

    fn outcome(class: Class) -> Outcome {
        Outcome {
            class,
            status: None,
            error: None,
            response: None,
            retry_after: None,
            duration: Duration::ZERO,
        }
    }

    fn settle(delivery: &Delivery, outcome: &Outcome) -> Settlement {
        Policy::default().settle(delivery, outcome, &mut StdRng::seed_from_u64(7))
    }

    #[test]
    fn each_class_has_its_settlement() {
        let table = [
            (Class::Success, "delivered"),
            (Class::Rejected, "dead"),
            (Class::Unsendable, "dead"),
            (Class::Redirect, "retry"),
            (Class::Unavailable, "retry"),
            (Class::Misconfigured, "retry"),
            (Class::Gone, "retry"),
            (Class::Proxy, "retry"),
            (Class::Dns, "retry"),
            (Class::Connect, "retry"),
            (Class::ConnectTimeout, "retry"),
            (Class::Tls, "retry"),
            (Class::Reset, "retry"),
            (Class::Protocol, "retry"),
            (Class::Timeout, "retry"),
            (Class::Aborted, "retry"),
        ];
        for (class, want) in table {
            assert_eq!(
                settle(&delivery(0), &outcome(class)).as_str(),
                want,
                "{class}"
            );
        }
    }

    #[test]
    fn the_last_attempt_is_max_attempts() {
        let last = Policy::default().max_attempts - 1;
        assert!(matches!(
            settle(&delivery(last - 1), &outcome(Class::Timeout)),
            Settlement::Retry(_)
        ));
        assert_eq!(
            settle(&delivery(last), &outcome(Class::Timeout)),
            Settlement::Dead(Reason::Attempts)
        );
        assert_eq!(
            settle(&delivery(u32::MAX), &outcome(Class::Timeout)),
            Settlement::Dead(Reason::Attempts)
        );
        assert_eq!(
            settle(&delivery(last), &outcome(Class::Success)),
            Settlement::Delivered
        );
    }

    #[test]
    fn age_and_expiry_end_it_after_a_failure_only() {
        let mut old = delivery(3);
        old.age = Policy::default().max_age;
        assert_eq!(
            settle(&old, &outcome(Class::Reset)),
            Settlement::Dead(Reason::MaxAge)
        );
        assert_eq!(
            settle(&old, &outcome(Class::Success)),
            Settlement::Delivered
        );
        let mut expired = delivery(0);
        expired.expires_in = Some(Duration::ZERO);
        assert_eq!(
            settle(&expired, &outcome(Class::Reset)),
            Settlement::Dead(Reason::Expired)
        );
        assert_eq!(
            settle(&expired, &outcome(Class::Success)),
            Settlement::Delivered
        );
    }

    #[test]
    fn a_retry_after_lengthens_a_delay_up_to_the_cap() {
        let mut hinted = outcome(Class::Unavailable);
        hinted.retry_after = Some(Duration::from_secs(120));
        assert_eq!(
            settle(&delivery(0), &hinted),
            Settlement::Retry(Duration::from_secs(120))
        );
        hinted.retry_after = Some(Duration::MAX);
        assert_eq!(
            settle(&delivery(0), &hinted),
            Settlement::Retry(Policy::default().cap)
        );
    }

    #[test]
    fn a_misconfigured_endpoint_is_left_alone_for_longer() {
        for seed in 0..100 {
            let settlement = Policy::default().settle(
                &delivery(0),
                &outcome(Class::Misconfigured),
                &mut StdRng::seed_from_u64(seed),
            );
            let Settlement::Retry(delay) = settlement else {
                panic!("{settlement:?}")
            };
            assert!((32.0..=64.0).contains(&delay.as_secs_f64()), "{delay:?}");
        }
    }

    #[test]
    fn the_window_adds_up() {
        let policy = Policy {
            max_attempts: 4,
            cap: Duration::from_secs(3),
            ..Policy::default()
        };
        let window = policy.window();
        assert_eq!(
            (window.attempts, window.longest, window.capped_from),
            (4, Duration::from_secs(6), Some(3))
        );
        assert!(!window.ended_by_age);
        let policy = Policy {
            max_age: Duration::from_secs(2),
            ..policy
        };
        assert_eq!(policy.window().attempts, 3);
        assert!(policy.window().ended_by_age);
    }

    #[test]
    fn delays_at_the_cap_are_spread() {
        let policy = Policy::default();
        let mut rng = StdRng::seed_from_u64(1);
        let delays: Vec<_> = (0..1000)
            .map(|_| policy.delay(40, &mut rng).as_secs())
            .collect();
        let below_half = delays.iter().filter(|&&seconds| seconds < 1800).count();
        assert!((400..600).contains(&below_half), "{below_half}");
    }

    proptest! {
        #[test]
        fn a_delay_is_never_beyond_the_cap_nor_below_the_minimum(
            base in 0_u64..10_000_000, factor in 1.0_f64..1e6, cap in 0_u64..10_000_000_000, attempt in any::<u32>(), seed in any::<u64>(),
        ) {
            let policy = Policy {
                base: Duration::from_millis(base), factor, cap: Duration::from_millis(cap), ..Policy::default()
            };
            let delay = policy.delay(attempt, &mut StdRng::seed_from_u64(seed));
            prop_assert!(delay <= policy.cap);
            prop_assert!(delay >= MINIMUM.min(policy.base).min(policy.cap));
        }
    }
}
