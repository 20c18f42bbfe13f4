//! What follows from an event: every plan of three steps, every way through it, every event at each place.
use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio_postgres::{Client, types::ToSql};

use crate::support::database;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Where a saga is, and what its participants have done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    plan: usize,
    parked: bool,
    phase: &'static str,
    at: usize,
    done: BTreeSet<usize>,
    /// Nobody knows of these.
    unknown: BTreeSet<usize>,
    undone: Vec<usize>,
    /// The event that parked it.
    because: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct Case {
    state: State,
    event: &'static str,
    back: bool,
}

struct Next {
    status: Option<String>,
    phase: String,
    at: usize,
    forward: Option<String>,
}

struct Plan {
    json: Value,
    undo: [bool; 3],
    pivot: Option<usize>,
    compensates: [bool; 3],
}

/// All plans of three steps that `outbox.check_plan` lets through.
fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for bits in 0..8_usize {
        let undo = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
        for pivot in [None, Some(0), Some(1), Some(2)] {
            for exhausted in 0..8_usize {
                let compensates = [exhausted & 1 > 0, exhausted & 2 > 0, exhausted & 4 > 0];
                let past = |step: usize| pivot.is_some_and(|pivot| step > pivot);
                let last = |step: usize| pivot == Some(step) && !undo[step];
                let wrong = |step: usize| {
                    past(step) && undo[step] || compensates[step] && (past(step) || last(step))
                };
                if (0..3).any(wrong) {
                    continue;
                }
                let step = |n: usize| {
                    let mut step = json!({"name": NAMES[n], "to": "e", "do": "/do"});
                    if undo[n] {
                        step["undo"] = json!("/undo");
                    }
                    if pivot == Some(n) {
                        step["pivot"] = json!(true);
                    }
                    if compensates[n] {
                        step["on_exhausted"] = json!("compensate");
                    }
                    step
                };
                let json = (0..3).map(step).collect();
                plans.push(Plan {
                    json,
                    undo,
                    pivot,
                    compensates,
                });
            }
        }
    }
    plans
}

/// What may happen to a saga in this state.
fn events(state: &State) -> Vec<(&'static str, bool)> {
    let back = match (state.because, state.phase) {
        (Some("unknown"), "do") => Some("back_unknown"),
        (Some(_), "do") => Some("back_unsent"),
        _ => None,
    };
    match state.parked {
        true => [Some(("skip", false)), back.map(|event| (event, true))]
            .into_iter()
            .flatten()
            .collect(),
        false if state.phase == "do" => {
            let mut all: Vec<_> = ["done", "refused", "unknown"]
                .into_iter()
                .flat_map(|event| [(event, false), (event, true)])
                .collect();
            all.extend([("back_unsent", true), ("back_unknown", true)]);
            all
        }
        false => ["done", "refused", "unknown"]
            .into_iter()
            .map(|event| (event, false))
            .collect(),
    }
}

async fn ask(client: &Client, plans: &[Plan], cases: &[Case]) -> Vec<Next> {
    let steps: Vec<String> = cases
        .iter()
        .map(|case| plans[case.state.plan].json.to_string())
        .collect();
    let array = |steps: &BTreeSet<usize>| {
        let names: Vec<_> = steps.iter().map(|step| NAMES[*step]).collect();
        format!("{{{}}}", names.join(","))
    };
    let done = |case: &Case| {
        let mut done = case.state.done.clone();
        // As outbox.move_saga says it: this one's output is there already.
        if case.event == "done" && case.state.phase == "do" {
            done.insert(case.state.at);
        }
        array(&done)
    };
    let done: Vec<String> = cases.iter().map(done).collect();
    let unsure: Vec<String> = cases
        .iter()
        .map(|case| array(&case.state.unknown))
        .collect();
    let phase: Vec<_> = cases.iter().map(|case| case.state.phase).collect();
    let at: Vec<i32> = cases
        .iter()
        .map(|case| i32::try_from(case.state.at).unwrap())
        .collect();
    let event: Vec<_> = cases.iter().map(|case| case.event).collect();
    let back: Vec<_> = cases.iter().map(|case| case.back).collect();
    let query = "select n.status, n.phase, n.at_step, n.forward
                   from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bool[], $7::text[])
                        with ordinality as u (steps, done, phase, at, event, back, unsure, n)
                  cross join lateral outbox.next_step(u.steps::jsonb, u.done::text[], u.unsure::text[], u.phase, u.at, u.event, u.back) n
                  order by u.n";
    let parameters: [&(dyn ToSql + Sync); 7] = [&steps, &done, &phase, &at, &event, &back, &unsure];
    let rows = client.query(query, &parameters).await.unwrap();
    rows.iter()
        .map(|row| Next {
            status: row.get(0),
            phase: row.get(1),
            at: usize::try_from(row.get::<_, i32>(2)).unwrap(),
            forward: row.get(3),
        })
        .collect()
}

/// Checks what follows from a case against the rules, in the words of the issue, and returns the state after it, if that goes on.
fn check(plan: &Plan, case: &Case, next: &Next) -> Option<State> {
    let Case { state, event, back } = case;
    let mut after = State {
        parked: false,
        because: None,
        ..state.clone()
    };
    let forward = state.phase == "do";
    match *event {
        "done" if forward => _ = after.done.insert(state.at),
        "unknown" | "back_unknown" if forward => _ = after.unknown.insert(state.at),
        "done" | "skip" if !forward => after.undone.push(state.at),
        _ => {}
    }
    let past = plan.pivot.is_some_and(|pivot| pivot < state.at);
    let to_undo = |state: &State| -> BTreeSet<usize> {
        let happened = state.done.iter().chain(&state.unknown).copied();
        let undone = |step: &usize| plan.undo[*step] && !state.undone.contains(step);
        happened.filter(undone).collect()
    };
    let done_pivot = plan.pivot.is_some_and(|pivot| after.done.contains(&pivot));
    let status = next.status.as_deref();
    match status {
        None => {
            let no_way = past
                || plan
                    .pivot
                    .is_some_and(|pivot| after.unknown.contains(&pivot) && !plan.undo[pivot]);
            assert!(event.starts_with("back") && no_way, "{case:?}");
            return None;
        }
        Some("running") => {
            assert!(forward && ["done", "skip"].contains(event), "{case:?}");
            assert_eq!((&*next.phase, next.at), ("do", state.at + 1), "{case:?}");
            assert!(!back || past || done_pivot, "it was to go back: {case:?}");
        }
        Some("succeeded") => {
            assert!(
                forward && state.at == 2 && ["done", "skip"].contains(event),
                "{case:?}"
            );
            assert!(!back || past || done_pivot, "it was to go back: {case:?}");
            return None;
        }
        Some("parked") => {
            assert_eq!((&*next.phase, next.at), (state.phase, state.at), "{case:?}");
            let pipeline = plan.undo == [false; 3];
            let may = match *event {
                "refused" | "unknown" if !forward => true,
                "refused" => past || pipeline && !back,
                "unknown" => {
                    let last = plan.pivot == Some(state.at) && !plan.undo[state.at];
                    past || last || !back && !plan.compensates[state.at]
                }
                _ => false,
            };
            assert!(may, "nothing asks for an operator: {case:?}");
            after.parked = true;
            after.because = Some(event);
        }
        Some("compensating") => {
            assert_eq!(next.phase, "undo", "{case:?}");
            let left = to_undo(&after);
            assert_eq!(left.last(), Some(&next.at), "the last first: {case:?}");
            let unknown = after.unknown.contains(&next.at);
            let want = if unknown { "unknown" } else { "done" };
            assert_eq!(next.forward.as_deref(), Some(want), "{case:?}");
        }
        Some("compensated") => assert!(to_undo(&after).is_empty(), "{case:?}"),
        Some(other) => panic!("{other}: {case:?}"),
    }
    let backwards = ["compensating", "compensated"].contains(&status.unwrap());
    if backwards {
        assert!(!done_pivot, "there is no way back: {case:?}");
        let asked = match *event {
            "refused" => true,
            "unknown" => *back || plan.compensates[state.at],
            "done" | "skip" => !forward || *back,
            _ => true,
        };
        assert!(asked, "nothing asks for the way back: {case:?}");
    }
    if status == Some("compensated") {
        return None;
    }
    after.phase = if next.phase == "do" { "do" } else { "undo" };
    after.at = next.at;
    Some(after)
}

#[tokio::test]
async fn every_way_through_every_plan_keeps_the_rules() {
    let database = database().await;
    let client = database.connect().await;
    let plans = plans();
    let json: Vec<String> = plans.iter().map(|plan| plan.json.to_string()).collect();
    let right = "select count(*) from unnest($1::text[]) as p (steps) where outbox.check_plan(p.steps::jsonb)";
    let right: i64 = client.query_one(right, &[&json]).await.unwrap().get(0);
    assert_eq!(usize::try_from(right).unwrap(), plans.len());

    let mut frontier: BTreeSet<State> = (0..plans.len())
        .map(|plan| State {
            plan,
            parked: false,
            phase: "do",
            at: 0,
            done: BTreeSet::new(),
            unknown: BTreeSet::new(),
            undone: Vec::new(),
            because: None,
        })
        .collect();
    let (mut seen, mut cases_seen, mut rounds) = (frontier.clone(), 0, 0);
    while !frontier.is_empty() {
        let cases: Vec<Case> = frontier
            .iter()
            .flat_map(|state| {
                let state = state.clone();
                events(&state).into_iter().map(move |(event, back)| Case {
                    state: state.clone(),
                    event,
                    back,
                })
            })
            .collect();
        let nexts = ask(&client, &plans, &cases).await;
        cases_seen += cases.len();
        let mut fresh = BTreeSet::new();
        for (case, next) in cases.iter().zip(&nexts) {
            if let Some(state) = check(&plans[case.state.plan], case, next)
                && seen.insert(state.clone())
            {
                fresh.insert(state);
            }
        }
        frontier = fresh;
        rounds += 1;
        assert!(rounds < 20, "each way ends");
    }
    println_counts(plans.len(), seen.len(), cases_seen);
    assert!(plans.len() > 100 && seen.len() > 1000 && cases_seen > 5000);
}

#[allow(clippy::print_stdout, reason = "how much was looked at")]
fn println_counts(plans: usize, states: usize, cases: usize) {
    println!("{plans} plans, {states} states, {cases} cases");
}
