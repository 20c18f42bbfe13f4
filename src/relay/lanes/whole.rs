//! Sweeps that go all the way, in place of a claim at the floors: in a lane that is as good as empty, and at a ring of the doorbell.
//!
//! Such a lane holds little more than what is on its way, so a claim at the bottom costs about what one at the floors does, and finds
//! rows that committed late as well. Where dead rows pile up below the floors it does not: then claims are made at the floors, and
//! sweeps keep to their share of the time.

use std::time::Duration;

use tokio::time::Instant;

/// A sweep is cheap if it costs three times as much as a claim at the floors at most, and this.
const CHEAP: Duration = Duration::from_micros(300);

/// After so many in their place a claim is made at the floors, to compare.
const COMPARE: u32 = 50;

/// What is known of them in one lane.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// Somebody rang, and it may have been for this lane.
    rung: bool,
    /// The last claim left nothing above where it started.
    empty: bool,
    /// The claim on its way is such a sweep; since when.
    started: Option<Instant>,
    /// When the last one started that left nothing.
    seen: Option<Instant>,
    /// What a claim at the bottom costs, about, and what the last one at the floors did.
    cost: Duration,
    floor_cost: Option<Duration>,
    /// So many in a row.
    count: u32,
}

impl Whole {
    /// Somebody rang.
    pub(super) fn ring(&mut self) {
        self.rung = true;
    }

    /// Whether one has gone over all that was there at this moment.
    pub(super) fn has_seen(&self, moment: Instant) -> bool {
        self.seen >= Some(moment)
    }

    /// Whether the claim that starts now is to be one; `due`: otherwise it would be made at the floors, and nothing but its place
    /// matters.
    pub(super) fn starts(&mut self, due: bool, now: Instant) -> bool {
        let wanted = std::mem::take(&mut self.rung) || due && self.empty;
        let cheap = self
            .floor_cost
            .is_none_or(|cost| self.cost <= cost * 3 + CHEAP);
        let starts = wanted && cheap && self.count < COMPARE;
        self.started = starts.then_some(now);
        self.count += u32::from(starts);
        starts
    }

    /// The claim on its way did not get to look.
    pub(super) fn missed(&mut self) {
        self.rung |= self.started.take().is_some();
    }

    /// A claim at the floors has cost this.
    pub(super) fn claimed_at_floors(&mut self, cost: Duration) {
        self.floor_cost = Some(cost);
        self.count = 0;
    }

    /// One at the bottom has.
    pub(super) fn claimed_at_bottom(&mut self, cost: Duration) {
        // One that was slow for once says little.
        self.cost = cost.min((self.cost * 3 + cost) / 4);
    }

    /// A claim ended, and left nothing if it was `dry`. Returns whether nothing is left anywhere in the lane.
    pub(super) fn ended(&mut self, dry: bool) -> bool {
        self.empty = dry;
        let started = self.started.take().filter(|_| dry);
        self.seen = started.or(self.seen);
        started.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn only_a_lane_that_was_empty_or_rang_is_swept_at_once() {
        let now = Instant::now();
        let mut whole = Whole::default();
        assert!(!whole.starts(true, now));
        assert!(!whole.ended(false));
        assert!(!whole.starts(true, now));
        assert!(!whole.ended(true), "it was at the floors");
        assert!(!whole.starts(false, now), "it is not due");
        assert!(whole.starts(true, now));
        assert!(whole.ended(true));
        assert!(whole.has_seen(now) && !whole.has_seen(now + MILLISECOND));
        assert!(whole.starts(true, now));
        assert!(!whole.ended(false), "there is more");
        whole.ring();
        assert!(whole.starts(false, now));
        whole.missed();
        assert!(whole.starts(false, now), "the ring is not forgotten");
        assert!(!whole.starts(false, now));
    }

    #[test]
    fn where_it_costs_more_it_is_not_done() {
        let now = Instant::now();
        let mut whole = Whole::default();
        whole.claimed_at_floors(MILLISECOND);
        for cost in [1, 2, 1, 8, 1, 1] {
            whole.ring();
            assert!(whole.starts(true, now), "{cost}");
            whole.claimed_at_bottom(cost * MILLISECOND);
            whole.ended(true);
        }
        whole.claimed_at_bottom(77 * MILLISECOND);
        whole.ring();
        assert!(!whole.starts(true, now));
        // Sweeps go on at their pace, and find out when that is over.
        whole.claimed_at_bottom(MILLISECOND);
        whole.ring();
        assert!(whole.starts(true, now));
    }

    #[test]
    fn it_is_compared_now_and_then() {
        let now = Instant::now();
        let mut whole = Whole::default();
        let row = |whole: &mut Whole| {
            let mut count = 0;
            loop {
                whole.ring();
                if !whole.starts(true, now) {
                    whole.claimed_at_floors(MILLISECOND);
                    return count;
                }
                count += 1;
            }
        };
        assert_eq!((row(&mut whole), row(&mut whole)), (COMPARE, COMPARE));
    }
}
