//! When to look into which lane, and from where: the memory behind the loop. Pure but for the moments it is given.
//!
//! A claim starts at the floors that the last one left, so that it never reads again what it has dealt with. Rows can
//! still appear below: a transaction that took an early `seq` and commits late, rows that were given back. A full sweep finds
//! them: it runs when a lane ran dry, at every poll, and under load for at most a twentieth of the time.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    message::Lane,
    store::{ClaimState, Claimed, Floors, Found},
};

/// Sweeps and skip scans may take this share of the time: one part in so many.
const SHARE: u32 = 20;

/// After a claim that brought something from a lane that is dry now, it is asked again so soon.
const SOON: Duration = Duration::from_millis(5);

/// An endpoint that is paused is asked again so often.
const PAUSED: Duration = Duration::from_secs(1);

/// All lanes that were ever seen to hold rows.
#[derive(Debug)]
pub(super) struct Lanes {
    poll: Duration,
    lanes: BTreeMap<Lane, State>,
    /// The lane that was asked last: the next one in order comes next.
    last: Option<Lane>,
}

#[derive(Debug)]
struct State {
    floors: Floors,
    /// When to claim next; `None` = when something is found there.
    look: Option<Instant>,
    /// The next claim starts at the bottom.
    sweep: bool,
    /// No sweep before this, or sweeps would take more than their share.
    next_sweep: Instant,
    /// Under load a sweep is made from this moment on, though the lane did not run dry.
    overdue: Instant,
    /// How long to wait after a dry claim.
    wait: Duration,
    /// The last claim said that the endpoint is paused.
    paused: bool,
}

impl Lanes {
    pub(super) fn new(poll: Duration) -> Lanes {
        Lanes {
            poll,
            lanes: BTreeMap::new(),
            last: None,
        }
    }

    /// Takes in what a skip scan found. Returns the lanes that were not known.
    pub(super) fn found(&mut self, found: Vec<Found>, now: Instant) -> Vec<Lane> {
        let mut fresh = Vec::new();
        for Found { lane, ready, due } in found {
            let at = if ready {
                now
            } else {
                due.map_or(now, |due| far(now, due))
            };
            let state = self.lanes.entry(lane).or_insert_with_key(|lane| {
                fresh.push(lane.clone());
                State::new(now)
            });
            if state.look.is_none_or(|look| look > at) && !state.paused {
                state.look = Some(at);
                state.sweep = true;
            }
        }
        fresh
    }

    /// Forgets lanes, so that the next skip scan finds them afresh.
    pub(super) fn forget(&mut self, lanes: &[Lane]) {
        for lane in lanes {
            self.lanes.remove(lane);
        }
    }

    /// The next lane to claim from among those that `fits` (its endpoint has room), in turn.
    pub(super) fn next(&mut self, now: Instant, fits: impl Fn(&Lane) -> bool) -> Option<Lane> {
        let due = |(lane, state): &(&Lane, &State)| {
            state.look.is_some_and(|look| look <= now) && fits(lane)
        };
        let after = self.last.as_ref().and_then(|last| {
            use std::ops::Bound::{Excluded, Unbounded};
            self.lanes
                .range((Excluded(last.clone()), Unbounded))
                .find(due)
        });
        let lane = after.or_else(|| self.lanes.iter().find(due))?.0.clone();
        self.last = Some(lane.clone());
        Some(lane)
    }

    /// Where a claim of this lane starts, and whether that is a full sweep.
    pub(super) fn floors(&mut self, lane: &Lane, now: Instant) -> (Floors, bool) {
        let Some(state) = self.lanes.get_mut(lane) else {
            return (Floors::default(), true);
        };
        if now >= state.next_sweep && (state.sweep || now >= state.overdue) {
            // The floor of leases is exact under the lane's lock: it needs no sweep.
            (
                Floors {
                    lease: state.floors.lease,
                    ..Floors::default()
                },
                true,
            )
        } else {
            (state.floors.clone(), false)
        }
    }

    /// Takes in what a claim brought; it was a `sweep` and took `cost`. `jitter` is a draw from 0 to 1.
    pub(super) fn claimed(
        &mut self,
        lane: &Lane,
        claimed: &Claimed,
        sweep: bool,
        cost: Duration,
        now: Instant,
        jitter: f64,
    ) {
        let Some(state) = self.lanes.get_mut(lane) else {
            return;
        };
        if let Some(floors) = &claimed.floors {
            state.floors = floors.clone();
        }
        state.paused = claimed.state == ClaimState::Paused;
        match claimed.state {
            ClaimState::Claimed | ClaimState::Empty => {
                state.sweep = false;
                if sweep {
                    state.next_sweep = now + cost * SHARE;
                    state.overdue = now + self.poll;
                }
                let empty = claimed.lease.is_none();
                if !claimed.dry {
                    state.look = Some(now);
                    return;
                }
                state.sweep = true;
                if !sweep && empty {
                    state.look = Some(state.next_sweep.max(now));
                    return;
                }
                state.wait = if empty {
                    (state.wait * 2).min(self.poll)
                } else {
                    SOON.min(self.poll)
                };
                let next = claimed
                    .next_due
                    .map_or(state.wait, |due| due.min(state.wait));
                // A lane that is empty is found again by the skip scan.
                let idle = empty && claimed.next_due.is_none() && state.wait >= self.poll;
                state.look = (!idle).then(|| now + next);
            }
            ClaimState::Busy => {
                state.look = Some(now + SOON.mul_f64(0.5 + jitter));
            }
            ClaimState::Paused => state.look = Some(now + PAUSED.mul_f64(0.5 + jitter)),
            ClaimState::NotBefore => {
                state.look = Some(far(now, claimed.next_due.unwrap_or(PAUSED)));
            }
            // The caller registers anew, and with that forgets all of this.
            ClaimState::RelayGone | ClaimState::OtherSession | ClaimState::OtherEpoch => {}
        }
    }

    /// Lanes that go to the `same` paused endpoint wait together with the one that was told so: one claim a second asks for
    /// all of them.
    pub(super) fn pause_with(&mut self, lane: &Lane, same: impl Fn(&Lane) -> bool) {
        let Some(look) = self.lanes.get(lane).map(|state| state.look) else {
            return;
        };
        for (_, state) in self.lanes.iter_mut().filter(|(lane, _)| same(lane)) {
            state.paused = true;
            state.look = look;
        }
    }

    /// A row of this lane will be due after `delay`.
    pub(super) fn due_in(&mut self, lane: &Lane, delay: Duration, now: Instant) {
        if let Some(state) = self.lanes.get_mut(lane) {
            let at = far(now, delay);
            if state.look.is_none_or(|look| look > at) && !state.paused {
                state.look = Some(at);
            }
        }
    }

    /// Whether the endpoint of this lane was paused when it was asked last.
    pub(super) fn is_paused(&self, lane: &Lane) -> bool {
        self.lanes.get(lane).is_some_and(|state| state.paused)
    }

    /// When the next lane among those that `fits` is to be asked.
    pub(super) fn next_look(&self, fits: impl Fn(&Lane) -> bool) -> Option<Instant> {
        let due = self.lanes.iter().filter(|(lane, _)| fits(lane));
        due.filter_map(|(_, state)| state.look).min()
    }
}

impl State {
    fn new(now: Instant) -> State {
        State {
            floors: Floors::default(),
            look: None,
            sweep: true,
            next_sweep: now,
            overdue: now,
            wait: SOON,
            paused: false,
        }
    }
}

/// When the skip scan is due again, after one that took `cost`.
pub(super) fn next_discovery(now: Instant, poll: Duration, cost: Duration) -> Instant {
    now + poll.max(cost * SHARE)
}

/// `now + delay`, without overflow: a delay of years is a day.
fn far(now: Instant, delay: Duration) -> Instant {
    now + delay.min(Duration::from_secs(24 * 60 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(200);

    fn lane(topic: &str) -> Lane {
        Lane {
            topic: topic.into(),
            endpoint: String::new(),
        }
    }

    fn found(topic: &str, ready: bool, due: Option<u64>) -> Found {
        Found {
            lane: lane(topic),
            ready,
            due: due.map(Duration::from_secs),
        }
    }

    fn claimed(state: ClaimState, taken: bool, dry: bool, seq: i64) -> Claimed {
        let lease = taken.then(|| crate::message::Lease {
            id: 1,
            lane: lane("a"),
            endpoint: "e".into(),
            ids: Vec::new(),
        });
        let floors = Some(Floors {
            ready: seq,
            waiting: None,
            lease: 7,
        });
        Claimed {
            state,
            lease,
            floors,
            dry,
            next_due: None,
        }
    }

    fn lanes(topics: &[&str], now: Instant) -> Lanes {
        let mut lanes = Lanes::new(POLL);
        let fresh = lanes.found(
            topics
                .iter()
                .map(|topic| found(topic, true, None))
                .collect(),
            now,
        );
        assert_eq!(fresh.len(), topics.len());
        lanes
    }

    fn tell(lanes: &mut Lanes, topic: &str, claimed: &Claimed, sweep: bool, now: Instant) {
        lanes.claimed(
            &lane(topic),
            claimed,
            sweep,
            Duration::from_millis(1),
            now,
            0.5,
        );
    }

    #[test]
    fn lanes_take_turns() {
        let now = Instant::now();
        let mut lanes = lanes(&["a", "b", "c"], now);
        let turns: Vec<String> = (0..5)
            .map(|_| lanes.next(now, |_| true).unwrap().topic)
            .collect();
        assert_eq!(turns, ["a", "b", "c", "a", "b"]);
        assert_eq!(
            lanes.next(now, |lane| lane.topic == "a").unwrap().topic,
            "a"
        );
        assert_eq!(lanes.next(now, |_| false), None);
    }

    #[test]
    fn a_claim_goes_on_at_the_floors_and_sweeps_when_dry() {
        let now = Instant::now();
        let mut lanes = lanes(&["a"], now);
        assert_eq!(lanes.floors(&lane("a"), now), (Floors::default(), true));
        tell(
            &mut lanes,
            "a",
            &claimed(ClaimState::Claimed, true, false, 50),
            true,
            now,
        );
        let (floors, sweep) = lanes.floors(&lane("a"), now);
        assert_eq!((floors.ready, floors.lease, sweep), (50, 7, false));
        assert_eq!(
            lanes.next_look(|_| true),
            Some(now),
            "more is there: at once"
        );

        tell(
            &mut lanes,
            "a",
            &claimed(ClaimState::Empty, false, true, 50),
            false,
            now,
        );
        let soon = now + Duration::from_millis(1) * SHARE;
        assert_eq!(
            lanes.next_look(|_| true),
            Some(soon),
            "dry: one sweep, as soon as its share allows"
        );
        let (floors, sweep) = lanes.floors(&lane("a"), soon);
        assert_eq!((floors.ready, floors.lease, sweep), (0, 7, true));
        assert!(!lanes.floors(&lane("a"), now).1);

        for _ in 0..10 {
            tell(
                &mut lanes,
                "a",
                &claimed(ClaimState::Empty, false, true, 50),
                true,
                now,
            );
        }
        assert_eq!(
            lanes.next_look(|_| true),
            None,
            "empty: until the skip scan finds something"
        );
    }

    #[test]
    fn under_load_sweeps_keep_to_their_share() {
        let start = Instant::now();
        let mut lanes = lanes(&["a"], start);
        let (cost, mut now, mut sweeps) = (Duration::from_millis(2), start, 0);
        for _ in 0..1000 {
            let (_, sweep) = lanes.floors(&lane("a"), now);
            sweeps += u32::from(sweep);
            now += cost;
            let brought = claimed(ClaimState::Claimed, true, false, 1);
            lanes.claimed(&lane("a"), &brought, sweep, cost, now, 0.5);
        }
        assert!((5..=20).contains(&sweeps), "{sweeps} sweeps in 2 s");
    }

    #[test]
    fn a_paused_lane_is_left_alone_though_rows_are_found() {
        let now = Instant::now();
        let mut lanes = lanes(&["a"], now);
        tell(
            &mut lanes,
            "a",
            &claimed(ClaimState::Paused, false, false, 0),
            true,
            now,
        );
        lanes.found(vec![found("a", true, None)], now);
        assert!(lanes.next(now, |_| true).is_none());
        assert!(lanes.next(now + PAUSED * 2, |_| true).is_some());
    }

    #[test]
    fn lanes_of_one_paused_endpoint_are_asked_as_one() {
        let now = Instant::now();
        let mut lanes = lanes(&["a", "b", "other"], now);
        let paused = claimed(ClaimState::Paused, false, false, 0);
        tell(&mut lanes, "b", &paused, true, now);
        lanes.pause_with(&lane("b"), |lane| lane.topic != "other");
        lanes.found(vec![found("a", true, None)], now);
        assert_eq!(lanes.next(now, |_| true), Some(lane("other")));
        assert_eq!(lanes.next(now, |lane| lane.topic != "other"), None);
        assert!(lanes.is_paused(&lane("a")) && !lanes.is_paused(&lane("other")));
        assert!(
            lanes
                .next(now + PAUSED * 2, |lane| lane.topic == "a")
                .is_some()
        );
    }

    #[test]
    fn a_row_that_is_due_later_is_looked_for_then() {
        let now = Instant::now();
        let mut lanes = Lanes::new(POLL);
        lanes.found(vec![found("a", false, Some(3))], now);
        assert_eq!(
            lanes.next_look(|_| true),
            Some(now + Duration::from_secs(3))
        );
        lanes.due_in(&lane("a"), Duration::from_secs(1), now);
        assert_eq!(
            lanes.next_look(|_| true),
            Some(now + Duration::from_secs(1))
        );
        lanes.due_in(&lane("a"), Duration::MAX, now);
        assert_eq!(
            lanes.next_look(|_| true),
            Some(now + Duration::from_secs(1))
        );
    }
}
