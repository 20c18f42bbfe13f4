//! The protocol of claims, leases and settles, checked over all orders in which things can happen.
//!
//! `state.rs` says what is modelled, `steps.rs` what can happen in it. Each rule is also switched off: the checker must then find a run that breaks
//! an invariant, or the rule would not be needed, or the model would not see what it is for. The counts of states are printed
//! (`cargo nextest run --test model --no-capture`).
#![allow(
    clippy::print_stdout,
    reason = "the counts of states are what one looks at"
)]

mod fan_out;
mod invariants;
mod moves;
mod protocol;
mod state;
mod steps;

use std::{fmt::Debug, hash::Hash};

use state::Rules;
use stateright::{Checker, HasDiscoveries, Model, Path};

/// What the checker asks of a model.
trait Protocol:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        Action: Clone + Debug + PartialEq + Send + Sync + 'static,
    > + Copy
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl Protocol for Rules {}

/// Looks at all states, and prints how many there are.
fn check(model: impl Protocol) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{model:?}: {} states, {} of them different, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

/// Without a rule this invariant is broken, in some run.
fn breaks(model: impl Protocol, invariant: &'static str) {
    let properties = model.properties();
    assert!(properties.iter().any(|one| one.name == invariant));
    let enough = HasDiscoveries::AnyOf([invariant].into());
    let checker = model
        .checker()
        .threads(2)
        .finish_when(enough)
        .spawn_bfs()
        .join();
    let found = checker.discovery(invariant).map(Path::into_actions);
    let found = found.unwrap_or_else(|| {
        panic!(
            "{model:?}: nothing breaks {invariant:?} in {} states",
            checker.unique_state_count()
        )
    });
    println!("without it, {invariant:?} is broken by {found:#?}");
}

#[test]
fn the_invariants_hold_with_a_fault() {
    check(Rules {
        faults: 1,
        ..Rules::ALL
    });
}

#[test]
fn the_invariants_hold_with_a_fault_and_a_replay() {
    check(Rules {
        faults: 1,
        replays: 1,
        ..Rules::ALL
    });
}

#[test]
fn without_the_head_rule_a_key_is_out_of_order() {
    breaks(
        Rules {
            head: false,
            ..Rules::ALL
        },
        "a key's messages are accepted in their order",
    );
}

#[test]
fn without_the_lifeline_a_relay_that_was_reaped_sends_too_late() {
    breaks(
        Rules {
            lifeline: false,
            ..Rules::ALL
        },
        "no request is started without its lease",
    );
}

#[test]
fn without_giving_back_what_follows_a_failure_a_key_is_out_of_order() {
    breaks(
        Rules {
            chain: false,
            ..Rules::ALL
        },
        "a key's messages are accepted in their order",
    );
}

#[test]
fn without_the_generation_a_late_answer_eats_a_replayed_message() {
    breaks(
        Rules {
            generation: false,
            faults: 1,
            replays: 1,
            ..Rules::ALL
        },
        "a late answer does not eat a replayed message",
    );
}

#[test]
fn without_the_fence_a_settle_that_is_sent_twice_counts_twice() {
    breaks(
        Rules {
            fence: false,
            ..Rules::ALL
        },
        "a message has all its tries",
    );
}

#[test]
fn without_the_session_a_claim_that_comes_late_closes_its_key_for_ever() {
    breaks(
        Rules {
            session: false,
            ..Rules::ALL
        },
        "nothing is left pending or leased",
    );
}
