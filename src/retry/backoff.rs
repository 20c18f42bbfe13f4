//! How long to wait before the next attempt.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use uuid::Uuid;

/// The delays between attempts, numbered from 1: the delay after attempt 1 comes first.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// Exponential with full jitter: a uniform draw up to `min(cap, base · factor^(n-1))`.
    Full {
        /// The upper end of the first delay.
        base: Duration,
        /// By how much the upper end grows with each attempt; at least 1.
        factor: f64,
        /// No delay is longer.
        cap: Duration,
    },
    /// Decorrelated jitter: a uniform draw between `base` and three times the delay before, up to `cap`.
    Decorrelated {
        /// The shortest delay.
        base: Duration,
        /// No delay is longer.
        cap: Duration,
    },
    /// These delays one after the other, the last one again and again. A tenth of each is added at random, so that rows
    /// that failed together do not come back together.
    Fixed {
        /// At least one.
        delays: Vec<Duration>,
    },
}

/// No retry comes sooner, unless the base itself is shorter.
pub(super) const MINIMUM: Duration = Duration::from_millis(100);

/// By this part of a fixed delay it is spread.
const SPREAD: u32 = 10;

impl Default for Backoff {
    fn default() -> Self {
        Backoff::Full {
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(60 * 60),
        }
    }
}

impl Backoff {
    /// The longest delay after attempt number `attempt` (from 1). Never beyond the cap, at any number.
    pub fn upper(&self, attempt: u32) -> Duration {
        match self {
            Backoff::Full { base, factor, cap } => grown(*base, *factor, *cap, attempt),
            Backoff::Decorrelated { base, cap } => grown(*base * 3, 3.0, *cap, attempt),
            Backoff::Fixed { delays } => {
                let delay = fixed(delays, attempt);
                delay + delay / SPREAD
            }
        }
    }

    /// The average delay after attempt number `attempt`; for decorrelated jitter an estimate.
    pub fn average(&self, attempt: u32) -> Duration {
        let upper = self.upper(attempt);
        match self {
            Backoff::Full { .. } => (upper + MINIMUM.min(upper)) / 2,
            Backoff::Decorrelated { base, .. } => {
                (upper.min(grown(*base * 2, 2.0, upper, attempt)) + *base) / 2
            }
            Backoff::Fixed { delays } => (upper + fixed(delays, attempt)) / 2,
        }
    }

    /// No delay is longer.
    pub fn cap(&self) -> Duration {
        match self {
            Backoff::Full { cap, .. } | Backoff::Decorrelated { cap, .. } => *cap,
            Backoff::Fixed { delays } => {
                let longest = delays.iter().max().copied().unwrap_or_default();
                longest + longest / SPREAD
            }
        }
    }

    /// The delay after attempt number `attempt` (from 1) of message `id`.
    pub fn delay(&self, id: Uuid, attempt: u32, rng: &mut impl Rng) -> Duration {
        match self {
            Backoff::Full { .. } => {
                let upper = self.upper(attempt);
                uniform(MINIMUM.min(upper), upper, rng)
            }
            // Each delay depends on the one before. It is not stored: the message's id is the seed of the whole row of
            // draws, which can be drawn again.
            Backoff::Decorrelated { base, cap } => {
                let mut draws = SmallRng::seed_from_u64(id.as_u64_pair().0 ^ id.as_u64_pair().1);
                let mut delay = *base;
                for _ in 0..attempt.min(1000) {
                    delay = uniform(*base, delay.saturating_mul(3).min(*cap), &mut draws);
                }
                delay
            }
            Backoff::Fixed { delays } => {
                let delay = fixed(delays, attempt);
                uniform(delay, delay + delay / SPREAD, rng)
            }
        }
    }

    /// A delay as if `steps` more attempts had failed, from the upper half of the range.
    pub(super) fn late(&self, attempt: u32, steps: u32, rng: &mut impl Rng) -> Duration {
        let upper = self.upper(attempt.saturating_add(steps));
        uniform(upper / 2, upper, rng)
    }
}

/// `min(cap, base · factor^(attempt-1))`, without overflow.
fn grown(base: Duration, factor: f64, cap: Duration, attempt: u32) -> Duration {
    let steps = f64::from(attempt.max(1) - 1);
    let seconds = base.as_secs_f64() * factor.max(1.0).powf(steps);
    // An overflow is infinite or not a number; both fail the comparison and mean the cap.
    if seconds < cap.as_secs_f64() {
        Duration::from_secs_f64(seconds)
    } else {
        cap
    }
}

fn fixed(delays: &[Duration], attempt: u32) -> Duration {
    let position = usize::try_from(attempt.max(1) - 1).unwrap_or(usize::MAX);
    delays
        .get(position)
        .or(delays.last())
        .copied()
        .unwrap_or_default()
}

fn uniform(low: Duration, high: Duration, rng: &mut impl Rng) -> Duration {
    if low >= high {
        high
    } else {
        rng.random_range(low..=high)
    }
}
