//! What each action does.

use super::state::{
    Action, ClaimSent, Held, Lease, Relay, Request, Row, Rules, SettleSent, Stage, State, Verdict,
};

/// What there is after it; `None` if it makes no difference.
pub(crate) fn step(rules: &Rules, last: &State, action: Action) -> Option<State> {
    let mut state = last.clone();
    let fault = |state: &mut State, is: bool| state.faults -= u8::from(is);
    match action {
        Action::Commit(id) => {
            state.rows[id] = Row::Pending {
                tries: 0,
                generation: 0,
            }
        }
        Action::Claim(relay) => {
            let one = &mut state.relays[relay];
            one.claiming = true;
            let sent = ClaimSent {
                relay,
                life: one.life,
                session: one.session,
            };
            state.claims.push(sent);
            state.claims.sort_unstable();
        }
        Action::Take { claim, most, heard } => {
            fault(&mut state, !heard);
            let sent = state.claims.remove(claim);
            let known = state.registered[sent.relay];
            let valid = known.is_some_and(|row| {
                row.life == sent.life && (row.session == sent.session || !rules.session)
            });
            let ids = if valid {
                state.claimable(*rules, most)
            } else {
                Vec::new()
            };
            let number = state.next_lease;
            if !ids.is_empty() {
                state.next_lease += 1;
                let lease = Lease {
                    number,
                    relay: sent.relay,
                    life: sent.life,
                    ids: ids.clone(),
                };
                state.leases.push(lease);
            }
            let generations: Vec<(usize, u8)> = ids
                .iter()
                .map(|id| match state.rows[*id] {
                    Row::Pending { generation, .. } => (*id, generation),
                    Row::Uncommitted | Row::Delivered { .. } | Row::Dead { .. } => (*id, 0),
                })
                .collect();
            let relay = &mut state.relays[sent.relay];
            let waits = relay.up
                && relay.claiming
                && relay.life == sent.life
                && relay.session == sent.session;
            if waits && heard {
                relay.claiming = false;
                let held = |(id, generation)| Held {
                    lease: number,
                    id,
                    generation,
                    stage: Stage::Waiting,
                };
                relay.held.extend(generations.into_iter().map(held));
            }
        }
        Action::GiveUpClaim(relay) => {
            fault(&mut state, last.claim_is_under_way(relay));
            state.relays[relay].claiming = false;
            state.relays[relay].doubt = true;
        }
        Action::Recover(at) => {
            let relay = &mut state.relays[at];
            relay.doubt = false;
            let known: Vec<u8> = relay.held.iter().map(|held| held.lease).collect();
            let life = relay.life;
            if let Some(row) = state.registered[at].as_mut().filter(|row| row.life == life) {
                row.session += 1;
                relay.session = row.session;
                state.leases.retain(|lease| {
                    lease.relay != at || lease.life != life || known.contains(&lease.number)
                });
            }
        }
        Action::Start { relay, held } => {
            let one = &mut state.relays[relay];
            let it = &mut one.held[held];
            it.stage = Stage::Sent;
            let request = Request::of(relay, one.life, *it);
            let leased = last.lease_of(request.id).is_some_and(|lease| {
                (lease.number, lease.relay, lease.life)
                    == (request.lease, request.relay, request.life)
            });
            state.stolen |= !leased;
            state.sent[request.id] += 1;
            state.requests.push(request);
            state.requests.sort_unstable();
        }
        Action::Arrive {
            request,
            accept,
            heard,
        } => {
            fault(&mut state, !heard);
            let it = state.requests.remove(request);
            if accept {
                match state.accepted.contains(&(it.id, it.generation)) {
                    true => state.repeated = true,
                    false => state.accepted.push((it.id, it.generation)),
                }
            }
            let relay = &mut state.relays[it.relay];
            if heard && relay.up && relay.life == it.life {
                answered(
                    rules,
                    relay,
                    it,
                    if accept {
                        Stage::Accepted
                    } else {
                        Stage::Failed
                    },
                );
            }
        }
        Action::GiveUpRequest { relay, held } => {
            let under_way = last.request_is_under_way(relay, last.relays[relay].held[held]);
            fault(&mut state, under_way && !last.relays[relay].late);
            let one = &mut state.relays[relay];
            let it = one.held[held];
            let request = Request::of(relay, one.life, it);
            answered(rules, one, request, Stage::Failed);
        }
        Action::Settle { relay, held } => {
            let one = &state.relays[relay];
            let it = one.held[held];
            let verdict = match it.stage {
                Stage::Accepted => Verdict::Delivered,
                Stage::GivenBack => Verdict::Release,
                Stage::Failed | Stage::Waiting | Stage::Sent => Verdict::Retry,
            };
            let sent = SettleSent {
                relay,
                life: one.life,
                lease: it.lease,
                id: it.id,
                generation: it.generation,
                verdict,
            };
            if state.settles.contains(&sent) {
                return None;
            }
            state.settles.push(sent);
            state.settles.sort_unstable();
        }
        Action::Apply {
            settle,
            again,
            heard,
        } => {
            fault(&mut state, again || !heard);
            let sent = state.settles[settle];
            if !again {
                state.settles.remove(settle);
            }
            state.apply(*rules, sent);
            let relay = &mut state.relays[sent.relay];
            if heard && relay.up && relay.life == sent.life {
                relay
                    .held
                    .retain(|held| (held.lease, held.id) != (sent.lease, sent.id));
            }
        }
        Action::Crash(relay) => {
            fault(&mut state, true);
            let one = &mut state.relays[relay];
            one.up = false;
            one.claiming = false;
            one.doubt = false;
            one.held.clear();
        }
        Action::Outage(relay) => {
            fault(&mut state, true);
            state.relays[relay].late = true;
        }
        Action::Renew(relay) => state.relays[relay].late = false,
        Action::Reap(relay) => {
            let life = state.registered[relay].take().map(|row| row.life);
            state
                .leases
                .retain(|lease| lease.relay != relay || Some(lease.life) != life);
        }
        Action::Register(relay) => {
            // A relay that was started anew does not know of its life before: that is reaped.
            if state.registered[relay].is_some() {
                return None;
            }
            state.register(relay);
        }
        Action::Replay(id) => {
            let Row::Dead { generation } = state.rows[id] else {
                return None;
            };
            state.replays -= 1;
            state.sent[id] = 0;
            state.rows[id] = Row::Pending {
                tries: 0,
                generation: generation + 1,
            };
        }
    }
    Some(state)
}

/// The relay has an answer, or waits for none: if it is bad, what is behind it is given back.
fn answered(rules: &Rules, relay: &mut Relay, it: Request, stage: Stage) {
    let mine =
        |held: &Held| held.lease == it.lease && held.id == it.id && held.stage == Stage::Sent;
    let Some(nth) = relay.held.iter().position(mine) else {
        return;
    };
    relay.held[nth].stage = stage;
    if stage == Stage::Failed && rules.chain {
        for held in &mut relay.held[nth + 1..] {
            if held.lease == it.lease && held.stage == Stage::Waiting {
                held.stage = Stage::GivenBack;
            }
        }
    }
}
