//! The protocol as a state machine: what the database does in one transaction is one step; what is on its way can arrive at any
//! later time, twice, or never.
use stateright::{Model, Property};

use super::{
    invariants::invariants,
    moves::moves,
    state::{Action, MESSAGES, RELAYS, Registered, Relay, Row, Rules, State},
    steps::step,
};

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let relay = Relay {
            up: true,
            life: 0,
            session: 0,
            late: false,
            claiming: false,
            doubt: false,
            held: Vec::new(),
        };
        vec![State {
            rows: [Row::Uncommitted; MESSAGES],
            registered: [Some(Registered {
                life: 0,
                session: 0,
            }); RELAYS],
            relays: [relay.clone(), relay],
            leases: Vec::new(),
            next_lease: 0,
            claims: Vec::new(),
            settles: Vec::new(),
            requests: Vec::new(),
            accepted: Vec::new(),
            repeated: false,
            died: [false; MESSAGES],
            sent: [0; MESSAGES],
            cheated: false,
            stolen: false,
            eaten: false,
            faults: self.faults,
            replays: self.replays,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        moves(self, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        step(self, last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        invariants()
    }
}
