//! `outbox-relay probe`: a participant that does all right passes, and each thing that one does wrong is found.
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::lab::receiver::{Receiver, Reply, Request};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::binary::{Directory, outbox_relay};

/// The work takes so long: what is at once overlaps, also on a machine that is busy.
const WORK: Duration = Duration::from_millis(300);

/// What a participant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// 422 to each do.
    AcceptsNothing,
    /// Looks at no key.
    ForgetsKeys,
    /// 409 to what is done.
    ConflictForRepetition,
    /// Writes the key down when the work is done, not before.
    WritesKeyTooLate,
    /// 500 to what comes while its twin is at work.
    FailsAtTwin,
    /// 422 to what comes while its twin is at work.
    RefusesTwin,
    /// Gives the first answer whatever the payload.
    IgnoresPayload,
    /// 400 to another payload.
    BadRequestForPayload,
    /// Takes another payload for another request.
    WorksForPayload,
    /// 404 to the undo of what it does not know.
    UndoesNothingUnknown,
    /// Does what was undone before.
    ForgetsUndo,
    /// 409 to it.
    ConflictForUndone,
    /// 404 to a second undo.
    UndoesOnce,
    /// Gives the answer from before to a do after its undo.
    RemembersDoneOnly,
    /// Does again what was done and undone.
    ForgetsUndoOfDone,
    /// 500 to each undo.
    NeverUndoes,
}

#[derive(Default)]
struct State {
    /// By the key: the payload, the answer, and when it is there.
    keys: HashMap<String, (Value, String, Instant)>,
    done: HashSet<String>,
    undone: HashSet<String>,
    works: u32,
}

struct Participant {
    fault: Option<Fault>,
    state: Mutex<State>,
}

impl Participant {
    fn start(fault: Option<Fault>) -> Receiver {
        let participant = Arc::new(Participant {
            fault,
            state: Mutex::default(),
        });
        Receiver::start(move |request| participant.answer(request)).unwrap()
    }

    fn answer(&self, request: &Request) -> Reply {
        let header = |name| request.header(name).unwrap_or_default().to_owned();
        let step = format!("{}/{}", header("saga-id"), header("saga-step"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let mut state = self.state.lock().unwrap();
        match header("saga-phase").as_str() {
            "do" => self.step(
                &mut state,
                step,
                header("idempotency-key"),
                &body["input"],
                request.at,
            ),
            "undo" => self.undo(&mut state, step),
            other => panic!("{other:?}"),
        }
    }

    fn step(
        &self,
        state: &mut State,
        step: String,
        mut key: String,
        input: &Value,
        now: Instant,
    ) -> Reply {
        let fault = self.fault;
        let is = |one| fault == Some(one);
        if is(Fault::AcceptsNothing) {
            return Reply::status(422);
        }
        if is(Fault::WorksForPayload) {
            key = format!("{key} {input}");
        }
        let was_done = state.done.contains(&step);
        let forgets = is(Fault::ForgetsUndo) && !was_done
            || is(Fault::ForgetsUndoOfDone) && was_done
            || is(Fault::RemembersDoneOnly) && state.keys.contains_key(&key);
        if state.undone.contains(&step) && !forgets {
            let conflict = is(Fault::ConflictForUndone);
            return Reply::status(if conflict { 409 } else { 422 });
        }
        let known = state.keys.get(&key).filter(|_| !is(Fault::ForgetsKeys));
        if let Some((payload, answer, ready)) = known {
            let busy = now < *ready;
            if payload != input && !is(Fault::IgnoresPayload) {
                let bad = is(Fault::BadRequestForPayload);
                return Reply::status(if bad { 400 } else { 422 });
            }
            if !busy {
                return match fault {
                    Some(Fault::ConflictForRepetition) => Reply::status(409),
                    _ => Reply::status(201).body(answer.clone()),
                };
            }
            match fault {
                Some(Fault::WritesKeyTooLate) => {}
                Some(Fault::FailsAtTwin) => return Reply::status(500),
                Some(Fault::RefusesTwin) => return Reply::status(422),
                _ => return Reply::status(409).header("Retry-After", "1"),
            }
        }
        state.works += 1;
        let answer = json!({"work": state.works}).to_string();
        let ready = now + WORK;
        state
            .keys
            .insert(key, (input.clone(), answer.clone(), ready));
        state.done.insert(step);
        Reply::status(201).body(answer).after(WORK)
    }

    fn undo(&self, state: &mut State, step: String) -> Reply {
        let first = !state.undone.contains(&step);
        match self.fault {
            Some(Fault::NeverUndoes) => return Reply::status(500),
            Some(Fault::UndoesNothingUnknown) if !state.done.contains(&step) => {
                return Reply::status(404);
            }
            Some(Fault::UndoesOnce) if !first => return Reply::status(404),
            _ => {}
        }
        state.undone.insert(step);
        // Both are right.
        Reply::status(if first { 204 } else { 410 })
    }
}

/// What it finds, by the words of the checks; and whether it exits as that says.
async fn probe(receiver: &Receiver, more: &[&str]) -> Vec<(String, String)> {
    let (url, undo) = (receiver.url("/reserve"), receiver.url("/release"));
    let mut arguments = vec!["probe", &url, "--undo", &undo, "--json"];
    arguments.extend(more);
    let output = outbox_relay("postgres://nobody@127.0.0.1:1/none", &arguments).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Value> = serde_json::from_str(&text).unwrap();
    let word = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
    for one in &found {
        let passed = one["verdict"] == "pass";
        assert_eq!(one["fix"].is_null(), passed, "{one}");
        assert!(!word(one, "seen").is_empty());
    }
    let failed = found.iter().any(|found| found["verdict"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)), "{text}");
    let pair = |found: &Value| (word(found, "check"), word(found, "verdict"));
    found.iter().map(pair).collect()
}

/// Those that did not pass.
async fn faults(fault: Fault) -> Vec<(String, String)> {
    let receiver = Participant::start(Some(fault));
    let mut found = probe(&receiver, &[]).await;
    found.retain(|(_, verdict)| verdict != "pass");
    found
}

#[tokio::test]
async fn a_participant_that_does_all_right_passes_every_check() {
    let receiver = Participant::start(None);
    let found = probe(&receiver, &[]).await;
    let words = found.iter().map(|(word, verdict)| {
        assert_eq!(verdict, "pass", "{found:?}");
        word.as_str()
    });
    let all = [
        "accepts",
        "repeat",
        "together",
        "other_payload",
        "undo_first",
        "undo_twice",
        "do_after_undo",
    ];
    assert_eq!(words.collect::<Vec<_>>(), all);
}

#[tokio::test]
async fn each_fault_is_found_and_nothing_else() {
    use Fault::*;
    let all: &[(Fault, &[(&str, &str)])] = &[
        (AcceptsNothing, &[("accepts", "fail")]),
        (
            ForgetsKeys,
            &[
                ("repeat", "fail"),
                ("together", "fail"),
                ("other_payload", "fail"),
            ],
        ),
        (
            ConflictForRepetition,
            &[("repeat", "fail"), ("together", "fail")],
        ),
        (WritesKeyTooLate, &[("together", "fail")]),
        (FailsAtTwin, &[("together", "warn")]),
        (RefusesTwin, &[("together", "fail")]),
        (IgnoresPayload, &[("other_payload", "warn")]),
        (BadRequestForPayload, &[("other_payload", "warn")]),
        (WorksForPayload, &[("other_payload", "fail")]),
        (UndoesNothingUnknown, &[("undo_first", "fail")]),
        (ForgetsUndo, &[("undo_first", "fail")]),
        (
            ConflictForUndone,
            &[("undo_first", "warn"), ("do_after_undo", "warn")],
        ),
        (UndoesOnce, &[("undo_twice", "fail")]),
        (RemembersDoneOnly, &[("do_after_undo", "warn")]),
        (ForgetsUndoOfDone, &[("do_after_undo", "fail")]),
        (
            NeverUndoes,
            &[
                ("undo_first", "fail"),
                ("undo_twice", "fail"),
                ("do_after_undo", "fail"),
            ],
        ),
    ];
    let each = all
        .iter()
        .map(|&(fault, want)| async move { (fault, want, faults(fault).await) });
    for (fault, want, found) in futures_util::future::join_all(each).await {
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found, want, "{fault:?}");
    }
}

#[tokio::test]
async fn a_participant_is_told_what_a_saga_tells_it() {
    let directory = Directory::new();
    let token = directory.write("token", "t0ken\n");
    let secret = directory.write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    let payload = directory.write("payload.json", r#"{"item": 7}"#);
    let payload = format!("@{}", payload.display());
    let receiver = Participant::start(None);
    let found = probe(
        &receiver,
        &[
            "--payload",
            &payload,
            "--header",
            "X-Tenant: 7",
            "--bearer-file",
            token.to_str().unwrap(),
            "--secret-file",
            secret.to_str().unwrap(),
            "--saga",
            "order",
            "--step",
            "reserve",
        ],
    )
    .await;
    assert!(
        found.iter().all(|(_, verdict)| verdict == "pass"),
        "{found:?}"
    );

    let requests = receiver.requests();
    for request in &requests {
        let header = |name| {
            request
                .header(name)
                .unwrap_or_else(|| panic!("no {name}: {request:?}"))
        };
        let key = header("idempotency-key");
        assert!(
            key.starts_with('"') && key.len() == 38,
            "as the draft wants it: {key}"
        );
        assert_eq!(header("saga-id").len(), 36);
        assert_eq!(
            (header("saga-name"), header("saga-step")),
            ("order", "reserve")
        );
        assert!(header("saga-attempt").parse::<u32>().unwrap() > 0);
        header("saga-deadline").parse::<jiff::Timestamp>().unwrap();
        assert_eq!(header("x-tenant"), "7");
        assert_eq!(header("authorization"), "Bearer t0ken");
        assert!(header("webhook-signature").starts_with("v1,"));
        let undo = request.path == "/release";
        assert_eq!(header("saga-phase"), if undo { "undo" } else { "do" });
        assert_eq!(request.header("saga-forward-outcome").is_some(), undo);
    }
    let bodies = |phase: &str| -> Vec<Value> {
        let of_phase = requests
            .iter()
            .filter(|request| request.header("saga-phase") == Some(phase));
        of_phase
            .map(|request| serde_json::from_slice(&request.body).unwrap())
            .collect()
    };
    assert_eq!(
        bodies("do")[0],
        json!({"input": {"item": 7}, "outputs": {}})
    );
    let undo = bodies("undo");
    assert_eq!(
        undo[0],
        json!({"input": {"item": 7}, "output": null, "outputs": {}})
    );
    assert!(
        undo[1]["output"]["work"].is_u64(),
        "its own output: {undo:?}"
    );
    // Do and undo of one step have keys of their own.
    let keys = |phase: &str| -> HashSet<String> {
        let of_phase = requests
            .iter()
            .filter(|request| request.header("saga-phase") == Some(phase));
        of_phase
            .map(|request| request.header("idempotency-key").unwrap().to_owned())
            .collect()
    };
    assert!(keys("do").is_disjoint(&keys("undo")));
}

#[tokio::test]
async fn what_cannot_be_probed_is_said_before_anything_is_sent() {
    let receiver = Participant::start(None);
    let url = receiver.url("/");
    for (wrong, want) in [
        (&["ftp://127.0.0.1/"][..], "http:// or https://"),
        (&["nonsense"], "relative URL"),
        (&[&url, "--payload", "{"], "no JSON"),
        (&[&url, "--payload", "@/nowhere.json"], "/nowhere.json"),
        (&[&url, "--header", "Idempotency-Key: 1"], "the relay sets"),
        (&[&url, "--header", "Saga-Id: 1"], "the relay sets"),
        (&[&url, "--bearer-file", "/nowhere"], "/nowhere"),
        (&[&url, "--timeout", "0s"], "more than 0"),
        (&[&url, "--other-payload", "{}"], "the same"),
    ] {
        let mut arguments = vec!["probe"];
        arguments.extend(wrong);
        let output = outbox_relay("postgres://nobody@127.0.0.1:1/none", &arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(want), "{wrong:?}: {said}");
    }
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn a_person_reads_what_to_mend() {
    let receiver = Participant::start(Some(Fault::WorksForPayload));
    let url = receiver.url("/");
    let output = outbox_relay("postgres://nobody@127.0.0.1:1/none", &["probe", &url]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("pass  repeat"), "{said}");
    assert!(said.contains("FAIL  other_payload"), "{said}");
    assert!(
        said.contains("Refuse another payload under a key with 422"),
        "{said}"
    );
    assert!(said.contains("undo is not checked"), "{said}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("1 of 4 checks failed"), "{error}");
}
