//! When to look into which lane, and from where: the memory behind the loop. Pure but for the moments it is given.
//!
//! A claim starts at the floors that the last one left, so that it never reads again what it has dealt with. Rows can
//! still appear below: a transaction that took an early `seq` and commits late, rows that were given back, rows of a key
//! that another relay opened. A sweep finds them. It goes from the bottom up to the floors, one claim at a time, beside the
//! claims at the floors and never instead of them; it starts when a lane ran dry, at every poll, and under load, and what of
//! it brings nothing takes at most a twentieth of the time. In a lane that was dry, and at a ring of the doorbell, it comes at once
//! and instead of a claim at the floors, as long as that costs about the same: the lane is as good as empty then, and the row that
//! is looked for may be anywhere.

mod open_keys;
mod whole;

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use self::{open_keys::OpenKeys, whole::Whole};
use crate::{
    message::Lane,
    store::{ClaimState, Claimed, Floors, Found},
};

/// Sweeps and skip scans may take this share of the time: one part in so many.
const SHARE: u32 = 20;

/// After a claim that brought something from a lane that is dry now, it is asked again so soon.
const SOON: Duration = Duration::from_millis(5);

/// Something came from a lane lately if it was not longer ago.
const LATELY: Duration = Duration::from_secs(1);

/// At a ring so many lanes are asked before the skip scan says which ones to ask.
const LIKELY: usize = 2;

/// All lanes that were ever seen to hold rows.
#[derive(Debug)]
pub(super) struct Lanes {
    poll: Duration,
    /// Inserts ring: a lane that ran dry need not be asked again.
    asleep: bool,
    lanes: BTreeMap<Lane, State>,
    /// The lane that was asked last: the next one in order comes next.
    last: Option<Lane>,
}

#[derive(Debug)]
struct State {
    floors: Floors,
    /// When to claim at the floors next; `None` = when something is found there.
    look: Option<Instant>,
    /// Where a sweep that is on its way has got to.
    cursor: Option<Floors>,
    /// A sweep is to start.
    wanted: bool,
    /// No sweep before this, or sweeps would take more than their share.
    next_sweep: Instant,
    /// Under load a sweep starts at this moment, though the lane did not run dry.
    overdue: Instant,
    /// What the sweep on its way has cost and was not yet paid for by a pause.
    owed: Duration,
    /// The last claim was one of a sweep: the floors come next if both are due.
    swept: bool,
    /// Sweeps in a row, from the bottom to the floors, that brought nothing, nor did a claim between them.
    vain: u32,
    /// Something was brought since the last sweep ended.
    brought: bool,
    /// The last claim at the floors left nothing there that could be had.
    dry: bool,
    /// Other relays have leases of it: they may die, and what they have is due again then.
    others: bool,
    /// How long to wait after a dry claim.
    wait: Duration,
    /// Keys that a settle opened since the last claim at the floors.
    open_keys: OpenKeys,
    /// Sweeps in place of claims at the floors.
    whole: Whole,
    /// When something was brought last.
    brought_at: Option<Instant>,
}

/// Where a claim starts.
#[derive(Debug, PartialEq)]
pub(super) struct Start {
    pub(super) floors: Floors,
    /// It is one of a sweep.
    pub(super) sweep: bool,
    /// Keys to be asked for directly.
    pub(super) open_keys: Vec<String>,
}

impl Lanes {
    pub(super) fn new(poll: Duration) -> Lanes {
        Lanes {
            poll,
            asleep: false,
            lanes: BTreeMap::new(),
            last: None,
        }
    }

    /// Takes in what a skip scan found; it was made for a ring at the moment `rung`. Returns the lanes that were not known.
    pub(super) fn found(
        &mut self,
        found: Vec<Found>,
        rung: Option<Instant>,
        now: Instant,
    ) -> Vec<Lane> {
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
            // What is there is on its way: a sweep has gone over it since.
            if at <= now && rung.is_some_and(|rung| state.whole.has_seen(rung)) {
                continue;
            }
            if state.look.is_none_or(|look| look > at) {
                state.look = Some(at);
            }
            if at <= now && rung.is_some() {
                state.ring(now);
            }
            state.wanted |= at <= now;
        }
        fresh
    }

    /// Fan-out has put rows into this lane.
    pub(super) fn filled(&mut self, lane: Lane, now: Instant) {
        let state = self.lanes.entry(lane).or_insert_with(|| State::new(now));
        state.look = Some(now);
        state.dry = false;
    }

    /// Whether there may be nothing in this lane to claim at once.
    pub(super) fn is_dry(&self, lane: &Lane) -> bool {
        self.lanes.get(lane).is_none_or(|state| state.dry)
    }

    /// Those that are known.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.keys()
    }

    /// From now on.
    pub(super) fn set_poll(&mut self, poll: Duration) {
        self.poll = poll;
    }

    /// From now on inserts ring, or they don't.
    pub(super) fn set_asleep(&mut self, asleep: bool) {
        self.asleep = asleep;
    }

    /// Somebody rang: it was most likely for a lane that something came from lately, if those are few. `false`: for none.
    pub(super) fn ring(&mut self, now: Instant) -> bool {
        let mut likely: Vec<&mut State> = self
            .lanes
            .values_mut()
            .filter(|state| state.brought_at.is_some())
            .collect();
        likely.sort_by_key(|state| std::cmp::Reverse(state.brought_at));
        let lately = |state: &&mut State| state.brought_at.is_some_and(|at| now < at + LATELY);
        match likely.iter().filter(|state| lately(state)).count() {
            count @ ..=LIKELY => likely.truncate(count.max(1)),
            _ => likely.clear(),
        }
        for state in &mut likely {
            state.ring(now);
        }
        !likely.is_empty()
    }

    /// Forgets lanes, so that the next skip scan finds them afresh.
    pub(super) fn forget(&mut self, lanes: &[Lane]) {
        for lane in lanes {
            self.lanes.remove(lane);
        }
    }

    /// The next lane to claim from among those that `fits` (its endpoint has room), in turn.
    pub(super) fn next(
        &mut self,
        now: Instant,
        fits: impl Fn(&Lanes, &Lane) -> bool,
    ) -> Option<Lane> {
        let lanes = &*self;
        let due = |(lane, state): &(&Lane, &State)| {
            state.look().is_some_and(|look| look <= now) && fits(lanes, lane)
        };
        let after = lanes.last.as_ref().and_then(|last| {
            use std::ops::Bound::{Excluded, Unbounded};
            lanes
                .lanes
                .range((Excluded(last.clone()), Unbounded))
                .find(due)
        });
        let lane = after.or_else(|| lanes.lanes.iter().find(due))?.0.clone();
        self.last = Some(lane.clone());
        Some(lane)
    }

    /// Those that there is something to be claimed from, as far as is known.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = &Lane> {
        let due = move |state: &State| state.look().is_some_and(|look| look <= now);
        let lanes = self.lanes.iter();
        lanes.filter_map(move |(lane, state)| due(state).then_some(lane))
    }

    /// Where the next claim of this lane starts; it can take `limit` messages.
    pub(super) fn start(&mut self, lane: &Lane, limit: usize, now: Instant) -> Start {
        let Some(state) = self.lanes.get_mut(lane) else {
            return Start {
                floors: Floors::default(),
                sweep: true,
                open_keys: Vec::new(),
            };
        };
        let at_floors = state.look.is_some_and(|look| look <= now);
        let whole = state
            .whole
            .starts(at_floors && state.open_keys.is_empty(), now);
        if whole {
            state.cursor = None;
        }
        let pending = state.cursor.is_some() || state.wanted || now >= state.overdue;
        let sweep = whole || pending && now >= state.next_sweep && !(at_floors && state.swept);
        state.swept = sweep;
        if sweep {
            // The floor of leases is exact under the lane's lock: it needs no sweep.
            let cursor = state.cursor.clone().unwrap_or_default();
            let floors = Floors {
                lease: state.floors.lease,
                ..cursor
            };
            return Start {
                floors,
                sweep,
                open_keys: Vec::new(),
            };
        }
        // Some of them have nothing more to be sent.
        let open_keys = state.open_keys.take(limit.saturating_mul(2));
        Start {
            floors: state.floors.clone(),
            sweep,
            open_keys,
        }
    }

    /// Takes in what a claim brought; it was one of a `sweep` and took `cost`. `jitter` is a draw from 0 to 1.
    pub(super) fn claimed(
        &mut self,
        lane: &Lane,
        claimed: &Claimed,
        sweep: bool,
        cost: Duration,
        now: Instant,
        jitter: f64,
    ) {
        let (poll, asleep) = (self.poll, self.asleep);
        let Some(state) = self.lanes.get_mut(lane) else {
            return;
        };
        match claimed.state {
            ClaimState::Claimed | ClaimState::Empty => {
                state.others = claimed.others;
                if claimed.brought {
                    state.brought_at = Some(now);
                }
                if sweep {
                    state.swept_to(claimed, cost, now, poll);
                } else {
                    state.whole.claimed_at_floors(cost);
                    state.looked(claimed, now, poll, asleep);
                }
                if state.whole.ended(claimed.dry) {
                    // It has gone over what is above the floors, too.
                    state.dry = true;
                    state.look_when_dry(claimed, now, poll, asleep);
                }
            }
            ClaimState::Busy => {
                state.whole.missed();
                state.look = Some(now + SOON.mul_f64(0.5 + jitter));
            }
            // The endpoint is closed: there is no room for its lanes until it is asked again.
            ClaimState::Paused
            | ClaimState::NotBefore
            | ClaimState::Open
            | ClaimState::Saturated
            | ClaimState::Missing => state.look = Some(now),
            // The caller registers anew, and with that forgets all of this.
            ClaimState::RelayGone | ClaimState::OtherSession | ClaimState::OtherEpoch => {}
        }
    }

    /// The last open row of this key is settled: what follows it can be claimed, wherever the floors are.
    pub(super) fn open(&mut self, lane: &Lane, key: String, now: Instant) {
        if let Some(state) = self.lanes.get_mut(lane) {
            state.open_keys.push(key);
            state.look = Some(now);
        }
    }

    /// The next claim at the floors asks for these keys first, whenever that is.
    pub(super) fn put_back(&mut self, lane: &Lane, keys: Vec<String>) {
        if let Some(state) = self.lanes.get_mut(lane) {
            state.open_keys.put_back(keys);
        }
    }

    /// A row of this lane will be due after `delay`.
    pub(super) fn due_in(&mut self, lane: &Lane, delay: Duration, now: Instant) {
        if let Some(state) = self.lanes.get_mut(lane) {
            let at = far(now, delay);
            if state.look.is_none_or(|look| look > at) {
                state.look = Some(at);
            }
        }
    }

    /// Whether what this lane holds can't be had now: its keys are closed.
    pub(super) fn is_closed(&self, lane: &Lane) -> bool {
        self.lanes
            .get(lane)
            .is_some_and(|state| state.vain >= 2 && !state.brought && !state.others)
    }

    /// When the next lane among those that `fits` is to be asked.
    pub(super) fn next_look(&self, fits: impl Fn(&Lanes, &Lane) -> bool) -> Option<Instant> {
        let due = self.lanes.iter().filter(|(lane, _)| fits(self, lane));
        due.filter_map(|(_, state)| state.look()).min()
    }
}

impl State {
    fn new(now: Instant) -> State {
        State {
            floors: Floors::default(),
            look: None,
            cursor: None,
            wanted: false,
            next_sweep: now,
            overdue: now + SOON,
            owed: Duration::ZERO,
            swept: false,
            vain: 0,
            brought: false,
            dry: true,
            others: false,
            wait: SOON,
            open_keys: OpenKeys::default(),
            whole: Whole::default(),
            brought_at: None,
        }
    }

    /// A row may have come, anywhere.
    fn ring(&mut self, now: Instant) {
        self.whole.ring();
        self.look = Some(now);
        // A sweep that is on its way may be past it.
        self.cursor = None;
        self.wanted = true;
    }

    /// When this lane is to be asked next, at its floors or by a sweep.
    fn look(&self) -> Option<Instant> {
        let pending = self.cursor.is_some() || self.wanted;
        let sweep = pending.then_some(self.next_sweep);
        match (self.look, sweep) {
            (Some(look), Some(sweep)) => Some(look.min(sweep)),
            (look, sweep) => look.or(sweep),
        }
    }

    /// After a claim at the floors.
    fn looked(&mut self, claimed: &Claimed, now: Instant, poll: Duration, asleep: bool) {
        self.brought |= claimed.brought;
        if let Some(floors) = &claimed.floors {
            self.floors = floors.clone();
        }
        self.dry = claimed.dry;
        if !claimed.dry {
            self.look = Some(now);
            return;
        }
        self.wanted = true;
        self.look_when_dry(claimed, now, poll, asleep);
    }

    fn look_when_dry(&mut self, claimed: &Claimed, now: Instant, poll: Duration, asleep: bool) {
        if !self.open_keys.is_empty() {
            self.look = Some(now);
            return;
        }
        if asleep {
            self.look = claimed.next_due.map(|due| far(now, due));
            return;
        }
        let empty = !claimed.brought;
        self.wait = if empty {
            (self.wait * 2).min(poll)
        } else {
            SOON.min(poll)
        };
        let next = claimed.next_due.map_or(self.wait, |due| due.min(self.wait));
        // A lane that is empty is found again by the skip scan.
        let idle = empty && claimed.next_due.is_none() && self.wait >= poll;
        self.look = (!idle).then(|| now + next);
    }

    /// After a claim of a sweep.
    fn swept_to(&mut self, claimed: &Claimed, cost: Duration, now: Instant, poll: Duration) {
        self.wanted = false;
        self.brought |= claimed.brought;
        let reached = claimed.floors.clone().unwrap_or_default();
        self.floors.lease = self.floors.lease.max(reached.lease);
        self.owed += cost;
        if !claimed.brought {
            // A lane that nobody can take from (all its keys closed) is swept ever more slowly.
            self.next_sweep = now + self.owed * (SHARE * (1 + self.vain.min(7)));
            self.owed = Duration::ZERO;
        }
        if self.cursor.is_none() {
            self.whole.claimed_at_bottom(cost);
        }
        let met = reached.ready >= self.floors.ready && reached.waiting >= self.floors.waiting;
        if claimed.dry || met {
            self.floors.ready = self.floors.ready.max(reached.ready);
            self.floors.waiting = self.floors.waiting.max(reached.waiting);
            self.cursor = None;
            self.vain = if self.brought {
                0
            } else {
                self.vain.saturating_add(1)
            };
            self.brought = false;
            self.overdue = now + poll;
            self.next_sweep = self.next_sweep.max(now + self.owed * SHARE);
            self.owed = Duration::ZERO;
        } else {
            self.cursor = Some(reached);
        }
    }
}

/// When the skip scan is due again, after one that took `cost`.
pub(super) fn next_discovery(now: Instant, poll: Duration, cost: Duration) -> Instant {
    now + poll.max(pause_after(cost))
}

/// How long to leave alone what took `cost`, so that it takes no more than its share.
pub(super) fn pause_after(cost: Duration) -> Duration {
    cost * SHARE
}

/// `now + delay`, without overflow: a delay of years is a day.
fn far(now: Instant, delay: Duration) -> Instant {
    now + delay.min(Duration::from_secs(24 * 60 * 60))
}

#[cfg(test)]
mod tests;
