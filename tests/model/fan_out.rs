//! Fan-out while two configurations run side by side: one relay still sends a topic to one endpoint, from the lane of the topic;
//! another makes of each row one per endpoint, in lanes of their own. Either may take over the other's configuration at any time.
//!
//! All messages have one key. What the other model is about (answers that are late, settles that are sent twice, leases that run
//! out) is left out here: a claim, an attempt and a settle are one step each, and a relay that crashes is reaped some time later.
use stateright::{Model, Property};

use super::{Protocol, breaks, check};

const MESSAGES: usize = 3;
const RELAYS: usize = 2;
/// Where rows wait: in the lane of the topic, or in that of the first or second endpoint.
const LANES: usize = 3;
const TOPIC: usize = 0;
const ENDPOINTS: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Fan-out leaves leased rows where they are.
    leased: bool,
    /// A row that was tried keeps its endpoint and its key.
    keeps: bool,
    /// A reap writes down where rows may have been sent.
    reaped: bool,
    /// An earlier row of the key in the other lane, or a lease for the same endpoint, closes the key.
    both: bool,
    /// Crashes and failed attempts.
    faults: u8,
    reloads: u8,
}

const ALL: Rules = Rules {
    leased: true,
    keeps: true,
    reaped: true,
    both: true,
    faults: 2,
    reloads: 1,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    Accepted,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    /// It was tried, or may have been.
    tried: bool,
    /// Fan-out moved it with its endpoint and its key.
    moved: bool,
}

const FRESH: Row = Row {
    tried: false,
    moved: false,
};

/// A batch; without an owner once that has crashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    owner: Option<usize>,
    lane: usize,
    to: usize,
    ids: Vec<(usize, Stage)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    committed: usize,
    /// By message and lane.
    rows: [[Option<Row>; LANES]; MESSAGES],
    leases: Vec<Lease>,
    /// Relays that fan out.
    several: [bool; RELAYS],
    /// What each endpoint accepted, each once.
    accepted: [Vec<usize>; ENDPOINTS],
    /// The keys that a message was sent to an endpoint under: its id, one of the endpoint's own.
    keys: [[[bool; 2]; ENDPOINTS]; MESSAGES],
    /// Was bound to the first endpoint before fan-out came to it.
    bound: [bool; MESSAGES],
    faults: u8,
    reloads: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Commit,
    Claim {
        relay: usize,
        lane: usize,
        most: usize,
    },
    Expand {
        relay: usize,
        id: usize,
    },
    Attempt {
        lease: usize,
        nth: usize,
        accept: bool,
    },
    Settle {
        lease: usize,
        nth: usize,
    },
    Crash(usize),
    Reap(usize),
    Reload(usize),
}

impl State {
    fn leased(&self, id: usize, lane: usize) -> bool {
        let of = |lease: &&Lease| lease.lane == lane;
        let mut ids = self.leases.iter().filter(of).flat_map(|lease| &lease.ids);
        ids.any(|(leased, _)| *leased == id)
    }

    /// What a claim may take, from the head of the key on.
    fn claimable(&self, rules: &Rules, lane: usize, to: usize) -> Vec<usize> {
        // The lane of the topic and that of the endpoint: a row of the key can be in either.
        let other = if lane == TOPIC { to + 1 } else { TOPIC };
        let closed = self
            .leases
            .iter()
            .any(|lease| lease.lane == lane || rules.both && lease.lane == other && lease.to == to);
        if closed {
            return Vec::new();
        }
        let earlier = |id: usize| (0..id).any(|before| self.rows[before][other].is_some());
        (0..self.committed)
            .filter(|id| self.rows[*id][lane].is_some())
            .take_while(|id| !rules.both || !earlier(*id))
            .collect()
    }
}

impl Protocol for Rules {}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            committed: 0,
            rows: [[None; LANES]; MESSAGES],
            leases: Vec::new(),
            several: [false, true],
            accepted: Default::default(),
            keys: Default::default(),
            bound: [false; MESSAGES],
            faults: self.faults,
            reloads: self.reloads,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.committed < MESSAGES {
            actions.push(Action::Commit);
        }
        for relay in 0..RELAYS {
            let lanes = if state.several[relay] {
                1..LANES
            } else {
                TOPIC..1
            };
            for lane in lanes {
                let ids = state.claimable(self, lane, lane.saturating_sub(1));
                for most in 1..=ids.len() {
                    actions.push(Action::Claim { relay, lane, most });
                }
            }
            for id in 0..MESSAGES {
                let free = !self.leased || !state.leased(id, TOPIC);
                if state.several[relay] && state.rows[id][TOPIC].is_some() && free {
                    actions.push(Action::Expand { relay, id });
                }
            }
            if state.faults > 0 && state.leases.iter().any(|lease| lease.owner == Some(relay)) {
                actions.push(Action::Crash(relay));
            }
            if state.reloads > 0 {
                actions.push(Action::Reload(relay));
            }
        }
        // In the end one relay fans out, or what waits in lanes of endpoints would wait for ever.
        if state.reloads == 0 && state.several == [false; RELAYS] {
            actions.push(Action::Reload(0));
        }
        for (at, lease) in state.leases.iter().enumerate() {
            if lease.owner.is_none() {
                actions.push(Action::Reap(at));
                continue;
            }
            for (nth, (_, stage)) in lease.ids.iter().enumerate() {
                match stage {
                    Stage::Waiting if nth == 0 => {
                        for accept in [true, false] {
                            if accept || state.faults > 0 {
                                actions.push(Action::Attempt {
                                    lease: at,
                                    nth,
                                    accept,
                                });
                            }
                        }
                    }
                    Stage::Waiting => {}
                    Stage::Accepted | Stage::Failed => {
                        actions.push(Action::Settle { lease: at, nth });
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit => {
                state.rows[state.committed][TOPIC] = Some(FRESH);
                state.committed += 1;
            }
            Action::Claim { relay, lane, most } => {
                let to = lane.saturating_sub(1);
                let ids = state.claimable(self, lane, to).into_iter().take(most);
                let ids = ids.map(|id| (id, Stage::Waiting)).collect();
                state.leases.push(Lease {
                    owner: Some(relay),
                    lane,
                    to,
                    ids,
                });
            }
            Action::Expand { id, .. } => {
                // One whose id is still on its way to some endpoint waits.
                if state.rows[id][1..].iter().any(Option::is_some) {
                    return None;
                }
                let row = state.rows[id][TOPIC].take()?;
                if row.tried && self.keeps {
                    state.rows[id][1] = Some(Row { moved: true, ..row });
                } else {
                    state.rows[id][1..].fill(Some(FRESH));
                }
            }
            Action::Attempt { lease, nth, accept } => {
                let Lease { lane, to, .. } = state.leases[lease];
                let id = state.leases[lease].ids[nth].0;
                // Its row says under which key. Nobody else can have removed it, unless leased rows may be expanded.
                let moved = state.rows[id][lane].is_some_and(|row| row.moved);
                let own = lane != TOPIC && !moved;
                state.keys[id][to][usize::from(own)] = true;
                state.bound[id] |= lane == TOPIC;
                if accept {
                    if !state.accepted[to].contains(&id) {
                        state.accepted[to].push(id);
                    }
                    state.leases[lease].ids[nth].1 = Stage::Accepted;
                } else {
                    state.faults -= 1;
                    state.leases[lease].ids[nth].1 = Stage::Failed;
                    // What is behind it is given back.
                    state.leases[lease].ids.truncate(nth + 1);
                }
            }
            Action::Settle { lease, nth } => {
                let lane = state.leases[lease].lane;
                let (id, stage) = state.leases[lease].ids.remove(nth);
                state.leases.retain(|lease| !lease.ids.is_empty());
                // It may not be there any more; then there is nothing to settle.
                if let Some(row) = state.rows[id][lane] {
                    let tried = Row { tried: true, ..row };
                    state.rows[id][lane] = (stage == Stage::Failed).then_some(tried);
                }
            }
            Action::Crash(relay) => {
                state.faults -= 1;
                for lease in &mut state.leases {
                    if lease.owner == Some(relay) {
                        lease.owner = None;
                    }
                }
            }
            Action::Reap(at) => {
                let lease = state.leases.remove(at);
                for (id, _) in lease.ids {
                    if let Some(row) = &mut state.rows[id][lease.lane] {
                        row.tried |= self.reaped;
                        state.bound[id] |= self.reaped && lease.lane == TOPIC;
                    }
                }
            }
            Action::Reload(relay) => {
                state.reloads = state.reloads.saturating_sub(1);
                state.several[relay] = !state.several[relay];
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a message has one key at an endpoint",
                |_, state: &State| {
                    let mut all = state.keys.iter().flatten();
                    all.all(|keys| *keys != [true, true])
                },
            ),
            Property::always("each endpoint accepts in order", |_, state: &State| {
                state.accepted.iter().all(|ids| ids.is_sorted())
            }),
            Property::always("no endpoint misses a message", |_, state: &State| {
                (0..state.committed).all(|id| {
                    let pending = state.rows[id].iter().any(Option::is_some);
                    let has = |endpoint: usize| state.accepted[endpoint].contains(&id);
                    pending || has(0) && (has(1) || state.bound[id])
                })
            }),
            Property::sometimes("both have all", |_, state: &State| {
                state.accepted.iter().all(|ids| ids.len() == MESSAGES)
            }),
            Property::sometimes("one was bound before", |_, state: &State| {
                state.rows[0][1].is_some_and(|row| row.moved)
            }),
            Property::eventually("nothing is left pending or leased", |_, state: &State| {
                let rows = state.rows.iter().flatten();
                state.leases.is_empty()
                    && state.committed == MESSAGES
                    && rows.flatten().count() == 0
            }),
        ]
    }
}

#[test]
fn fan_out_keeps_keys_and_order_while_configurations_change() {
    check(ALL);
}

#[test]
fn without_leaving_leased_rows_a_message_has_two_keys() {
    let rules = Rules {
        leased: false,
        ..ALL
    };
    breaks(rules, "a message has one key at an endpoint");
}

#[test]
fn without_keeping_what_was_tried_a_message_has_two_keys() {
    let rules = Rules {
        keeps: false,
        ..ALL
    };
    breaks(rules, "a message has one key at an endpoint");
}

#[test]
fn without_writing_down_at_a_reap_a_message_has_two_keys() {
    let rules = Rules {
        reaped: false,
        ..ALL
    };
    breaks(rules, "a message has one key at an endpoint");
}

#[test]
fn without_a_look_at_the_other_lane_a_key_is_out_of_order() {
    let rules = Rules { both: false, ..ALL };
    breaks(rules, "each endpoint accepts in order");
}
