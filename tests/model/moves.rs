//! What can happen next.

use super::state::{Action, MESSAGES, Row, Rules, Stage, State};

/// Adds all that can happen next.
pub(crate) fn moves(rules: &Rules, state: &State, actions: &mut Vec<Action>) {
    let faulty = state.faults > 0;
    for id in 0..MESSAGES {
        // Writers of one key take turns.
        if state.rows[id] == Row::Uncommitted && (id == 0 || state.rows[id - 1] != Row::Uncommitted)
        {
            actions.push(Action::Commit(id));
        }
        if state.replays > 0 && matches!(state.rows[id], Row::Dead { .. }) {
            actions.push(Action::Replay(id));
        }
    }
    for (at, relay) in state.relays.iter().enumerate() {
        if !relay.up || !state.is_registered(at) {
            actions.push(Action::Register(at));
        }
        // A whole lease time without a beat: it is down, or its own clock says that its time is over.
        if state.registered[at].is_some() && (!relay.up || relay.late || !state.is_registered(at)) {
            actions.push(Action::Reap(at));
        }
        if !relay.up {
            continue;
        }
        if relay.late && state.is_registered(at) {
            actions.push(Action::Renew(at));
        }
        if faulty {
            actions.push(Action::Crash(at));
            if !relay.late {
                actions.push(Action::Outage(at));
            }
        }
        // An answer that was lost comes no more: in the end nobody waits for it.
        if relay.claiming && (faulty || !state.claim_is_under_way(at)) {
            actions.push(Action::GiveUpClaim(at));
        }
        if relay.doubt {
            actions.push(Action::Recover(at));
        }
        let works = !relay.late && !relay.claiming && !relay.doubt;
        if works && state.is_registered(at) && !state.claimable(*rules, 1).is_empty() {
            actions.push(Action::Claim(at));
        }
        for (nth, held) in relay.held.iter().enumerate() {
            let first = !relay.held[..nth]
                .iter()
                .any(|before| before.lease == held.lease);
            match held.stage {
                Stage::Waiting if first && (!relay.late || !rules.lifeline) => {
                    actions.push(Action::Start {
                        relay: at,
                        held: nth,
                    });
                }
                Stage::Sent if faulty || relay.late || !state.request_is_under_way(at, *held) => {
                    actions.push(Action::GiveUpRequest {
                        relay: at,
                        held: nth,
                    });
                }
                Stage::Accepted | Stage::Failed | Stage::GivenBack => {
                    actions.push(Action::Settle {
                        relay: at,
                        held: nth,
                    });
                }
                Stage::Waiting | Stage::Sent => {}
            }
        }
    }
    for claim in 0..state.claims.len() {
        for most in 1..=MESSAGES {
            actions.push(Action::Take {
                claim,
                most,
                heard: true,
            });
            if faulty {
                actions.push(Action::Take {
                    claim,
                    most,
                    heard: false,
                });
            }
        }
    }
    for request in 0..state.requests.len() {
        for accept in [true, false] {
            actions.push(Action::Arrive {
                request,
                accept,
                heard: true,
            });
            if faulty {
                actions.push(Action::Arrive {
                    request,
                    accept,
                    heard: false,
                });
            }
        }
    }
    for settle in 0..state.settles.len() {
        actions.push(Action::Apply {
            settle,
            again: false,
            heard: true,
        });
        if faulty {
            actions.push(Action::Apply {
                settle,
                again: true,
                heard: true,
            });
            actions.push(Action::Apply {
                settle,
                again: false,
                heard: false,
            });
        }
    }
}
