//! Whether messages come so slowly that being woken for each of them is cheap. Pure but for the moments it is given.

use std::time::Duration;

use tokio::time::Instant;

/// What is counted is counted in stretches of this.
const STRETCH: Duration = Duration::from_millis(100);

/// Of more messages, or more rings, in one stretch nobody sleeps.
const LOUD: u64 = 50;

/// Nobody falls asleep within a while of a stretch with more messages than this.
const CALM: u64 = 25;

/// A sleep that was shorter than this was not worth it: the next one waits longer.
const SHORT: Duration = Duration::from_secs(1);

/// It never waits longer than this.
const LONGEST: Duration = Duration::from_secs(2);

/// How fast messages come, as far as it is seen, and what follows: sleep, or stay awake.
#[derive(Debug)]
pub(in crate::relay) struct Pace {
    stretch: Instant,
    messages: u64,
    rings: u64,
    asleep: bool,
    /// Since when it sleeps, or is awake.
    since: Instant,
    /// It stays awake until then, at least.
    calm_at: Instant,
    /// How long it must be calm before it sleeps.
    rest: Duration,
}

impl Pace {
    pub(in crate::relay) fn new(now: Instant) -> Pace {
        Pace {
            stretch: now,
            messages: 0,
            rings: 0,
            asleep: false,
            since: now,
            calm_at: now,
            rest: STRETCH,
        }
    }

    /// So many messages were claimed.
    pub(in crate::relay) fn claimed(&mut self, messages: usize, now: Instant) {
        self.roll(now);
        self.messages += messages as u64;
        if self.messages > CALM {
            self.calm_at = now + self.rest;
        }
    }

    /// So many inserters have rung.
    pub(in crate::relay) fn rung(&mut self, rings: u64, now: Instant) {
        self.roll(now);
        self.rings += rings;
    }

    /// Whether to sleep; `dry`: nothing is left that could be claimed now.
    pub(in crate::relay) fn sleeps(&mut self, dry: bool, now: Instant) -> bool {
        self.roll(now);
        if self.asleep && self.messages.max(self.rings) > LOUD {
            self.rest = match now.duration_since(self.since) < SHORT {
                true => (self.rest * 2).min(LONGEST),
                false => STRETCH,
            };
            self.asleep = false;
            self.since = now;
            self.calm_at = now + self.rest;
        } else if !self.asleep && dry && now >= self.calm_at {
            self.asleep = true;
            self.since = now;
        }
        self.asleep
    }

    /// When it may fall asleep, if nothing comes before; `None`: it does.
    pub(in crate::relay) fn next(&self) -> Option<Instant> {
        (!self.asleep).then_some(self.calm_at)
    }

    fn roll(&mut self, now: Instant) {
        if now.duration_since(self.stretch) >= STRETCH {
            self.stretch = now;
            self.messages = 0;
            self.rings = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs this many messages in each stretch, evenly, and says in which stretches it slept to the end.
    fn slept(pace: &mut Pace, start: Instant, stretches: &[u64]) -> Vec<bool> {
        let mut now = start;
        let mut slept = Vec::new();
        for messages in stretches {
            let mut sleeps = pace.sleeps(true, now);
            for _ in 0..*messages {
                pace.claimed(1, now);
                pace.rung(1, now);
                sleeps = pace.sleeps(true, now);
                now += STRETCH / 1000;
            }
            now += STRETCH - STRETCH / 1000 * u32::try_from(*messages).unwrap();
            slept.push(sleeps);
        }
        slept
    }

    #[test]
    fn it_sleeps_while_messages_are_few() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(slept(&mut pace, now, &[0, 1, 20, 40, 50, 1]), [true; 6]);
    }

    #[test]
    fn it_wakes_when_they_are_many_and_sleeps_when_that_is_over() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let stretches = [1, 200, 200, 40, 40, 10, 10, 10];
        let want = [true, false, false, false, false, false, true, true];
        // Not a short sleep.
        assert!(pace.sleeps(true, now));
        assert_eq!(slept(&mut pace, now + SHORT, &stretches), want);
    }

    #[test]
    fn what_can_be_claimed_keeps_it_awake() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert!(!pace.sleeps(false, now));
        assert!(pace.sleeps(true, now));
        assert!(pace.sleeps(false, now), "only the pace wakes it");
    }

    #[test]
    fn short_sleeps_get_rarer() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut waits = Vec::new();
        for _ in 0..7 {
            assert!(pace.sleeps(true, now));
            // Others take the messages: only the rings are heard.
            pace.rung(LOUD + 1, now);
            assert!(!pace.sleeps(true, now));
            let next = pace.next().unwrap();
            assert!(!pace.sleeps(true, next - Duration::from_millis(1)));
            waits.push(next.duration_since(now).as_millis());
            now = next;
        }
        assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000, 2000]);
        assert!(pace.sleeps(true, now));
        now += SHORT;
        pace.rung(LOUD + 1, now);
        assert!(!pace.sleeps(true, now));
        assert_eq!(pace.next(), Some(now + STRETCH));
    }
}
