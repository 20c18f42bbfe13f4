//! The checks, in the order in which they are made. Each has a saga of its own, so that none sees what another left behind.

use rand::{RngExt as _, rngs::StdRng};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Found, Verdict,
    participant::{Answer, Call, Meaning, Participant},
};
use crate::saga::Phase;

/// A race is not lost every time.
const ROUNDS: u32 = 3;

pub(super) struct Checks<'a> {
    participant: &'a Participant,
    payload: Value,
    other: Value,
    rng: StdRng,
}

/// What a check came to, without its word.
struct Judged {
    verdict: Verdict,
    seen: String,
    fix: Option<&'static str>,
}

// === impl Checks ===

impl<'a> Checks<'a> {
    pub(super) fn new(
        participant: &'a Participant,
        payload: Value,
        other: Value,
        rng: StdRng,
    ) -> Checks<'a> {
        Checks {
            participant,
            payload,
            other,
            rng,
        }
    }

    /// All of them; what follows the first only if a do is accepted at all.
    pub(super) async fn run(mut self) -> Vec<Found> {
        let call = self.call();
        let first = self.participant.settle(&call, 1).await;
        let judged = accepts(&first);
        let accepted = judged.verdict == Verdict::Pass;
        let mut found = vec![judged.named("accepts")];
        if !accepted {
            return found;
        }
        found.push(self.repeat(&call, &first).await.named("repeat"));
        found.push(self.together().await.named("together"));
        found.push(
            self.other_payload(&call, &first)
                .await
                .named("other_payload"),
        );
        if self.participant.undoes() {
            found.push(self.undo_first().await.named("undo_first"));
            let (twice, after) = self.undo_twice().await;
            found.push(twice.named("undo_twice"));
            found.push(after.named("do_after_undo"));
        }
        found
    }

    /// A do of a saga that nobody has heard of.
    fn call(&mut self) -> Call {
        Call {
            saga: self.uuid(),
            phase: Phase::Do,
            key: self.uuid(),
            input: self.payload.clone(),
            output: None,
        }
    }

    /// The undo of this do, which was answered so.
    fn undo(&mut self, call: &Call, output: Option<Value>) -> Call {
        Call {
            phase: Phase::Undo,
            key: self.uuid(),
            output,
            ..call.clone()
        }
    }

    fn uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.rng.random()).into_uuid()
    }

    async fn repeat(&self, call: &Call, first: &Answer) -> Judged {
        let second = self.participant.settle(call, 2).await;
        let seen = format!(
            "the same key twice: {}, then {}",
            first.shown(),
            second.shown()
        );
        match second.meaning() {
            Meaning::Done if second.same_as(first) => pass(seen),
            Meaning::Done => fail(
                seen,
                "Keep the answer beside the key, in the transaction of the work, and give the same one again: as it is, the work may be done twice.",
            ),
            Meaning::Gone | Meaning::Refused => fail(
                seen,
                "Answer a repetition as the first request was answered: a refusal says to the relay that the step did not succeed.",
            ),
            Meaning::Later => fail(
                seen,
                "Answer a repetition as the first request was answered: as it is, the relay asks again and again for what is done.",
            ),
        }
    }

    async fn together(&mut self) -> Judged {
        let mut judged = None;
        for _ in 0..ROUNDS {
            let call = self.call();
            let (a, b, c, d) = tokio::join!(
                self.participant.send(&call, 1),
                self.participant.send(&call, 2),
                self.participant.send(&call, 3),
                self.participant.send(&call, 4),
            );
            let at_once = [a, b, c, d];
            let mut settled = Vec::new();
            for answer in &at_once {
                settled.push(match answer.meaning() {
                    Meaning::Later => self.participant.settle(&call, 5).await,
                    Meaning::Done | Meaning::Gone | Meaning::Refused => answer.clone(),
                });
            }
            let round = together(&at_once, &settled);
            let passed = round.verdict == Verdict::Pass;
            judged = Some(round);
            if !passed {
                break;
            }
        }
        judged.expect("there is a round")
    }

    async fn other_payload(&self, call: &Call, first: &Answer) -> Judged {
        let call = Call {
            input: self.other.clone(),
            ..call.clone()
        };
        let answer = self.participant.settle(&call, 1).await;
        let seen = format!("another payload under the same key: {}", answer.shown());
        match (answer.meaning(), answer.status) {
            (Meaning::Refused, Some(422)) => pass(seen),
            (Meaning::Refused | Meaning::Gone, _) => warn(
                seen,
                "Refuse another payload under a key with 422, the status that the IETF draft of Idempotency-Key has for it.",
            ),
            // To compare payloads is optional in the draft.
            (Meaning::Done, _) if answer.same_as(first) => warn(
                seen + ", the answer to the first",
                "Keep a digest of the payload beside the key and refuse another one with 422, as the IETF draft of Idempotency-Key advises: \
                 as it is, a mistaken key passes for a success.",
            ),
            (Meaning::Done, _) => fail(
                seen,
                "Refuse another payload under a key with 422: as it is, one key is done twice.",
            ),
            (Meaning::Later, _) => warn(
                seen,
                "Refuse another payload under a key with 422: after this answer the relay asks again and again.",
            ),
        }
    }

    async fn undo_first(&mut self) -> Judged {
        let call = self.call();
        let undo = self.undo(&call, None);
        let undone = self.participant.settle(&undo, 1).await;
        let seen = format!("undo of what never came: {}", undone.shown());
        if !undone.undone() {
            return fail(
                seen,
                "Answer an undo of what never came with 2xx or 410, and remember it: the do may be on its way, or never come.",
            );
        }
        let done = self.participant.send(&call, 1).await;
        let seen = format!("{seen}; the do after it: {}", done.shown());
        match done.meaning() {
            Meaning::Refused => pass(seen),
            Meaning::Done => fail(
                seen,
                "Remember by Saga-Id and Saga-Step that a step was undone, and refuse a do that comes later with 422: nobody undoes it again.",
            ),
            Meaning::Gone | Meaning::Later => warn(seen, FOR_GOOD),
        }
    }

    async fn undo_twice(&mut self) -> (Judged, Judged) {
        let call = self.call();
        let done = self.participant.settle(&call, 1).await;
        let undo = self.undo(&call, done.output().or(Some(Value::Null)));
        let first = self.participant.settle(&undo, 1).await;
        let second = self.participant.settle(&undo, 2).await;
        let seen = format!(
            "do {}, undo {}, the same undo again {}",
            done.shown(),
            first.shown(),
            second.shown()
        );
        let judged = match (done.meaning(), first.undone(), second.undone()) {
            (Meaning::Done, true, true) => pass(seen),
            (Meaning::Done, false, _) => fail(
                seen,
                "Answer the undo of a step that was done with 2xx: after all else the saga stands still and somebody must look.",
            ),
            (Meaning::Done, true, false) => fail(
                seen,
                "Answer an undo that comes again with 2xx or 410, whatever is left to undo: the first answer may have been lost.",
            ),
            _ => fail(seen, DO_FAILED),
        };
        if !first.undone() {
            let seen = "not tried, for the undo did not succeed".to_owned();
            return (judged, fail(seen, "See undo_twice."));
        }
        (judged, self.do_after_undo(call, &done).await)
    }

    /// The request that was delayed on its way; and one that is new but for the saga and the step.
    async fn do_after_undo(&mut self, call: Call, before: &Answer) -> Judged {
        let late = self.participant.send(&call, 2).await;
        let other = Call {
            key: self.uuid(),
            ..call
        };
        let renewed = self.participant.send(&other, 1).await;
        let seen = format!(
            "after the undo, the do again {}, and under another key {}",
            late.shown(),
            renewed.shown()
        );
        let (late_means, renewed_means) = (late.meaning(), renewed.meaning());
        if renewed_means == Meaning::Done || late_means == Meaning::Done && !late.same_as(before) {
            return fail(
                seen,
                "Remember by Saga-Id and Saga-Step that a step was undone, and refuse a do that comes later with 422: nobody undoes it again.",
            );
        }
        match (late_means, renewed_means) {
            (Meaning::Refused, Meaning::Refused) => pass(seen),
            (Meaning::Done, _) => warn(
                seen,
                "Refuse a do that comes again after its undo with 422, instead of with the answer from before: that says the work is in place.",
            ),
            _ => warn(seen, FOR_GOOD),
        }
    }
}

const FOR_GOOD: &str = "Refuse a do that comes after its undo with a status that is for good, such as 422: after this one the relay asks again.";

const DO_FAILED: &str =
    "Answer a do like the first one with 2xx: without that nothing can be undone.";

fn accepts(first: &Answer) -> Judged {
    let seen = format!("one do: {}", first.shown());
    match first.meaning() {
        Meaning::Done => pass(seen),
        Meaning::Refused => fail(
            seen,
            "Give a payload that the participant accepts (--payload), or let it accept this one: nothing else can be checked.",
        ),
        Meaning::Gone | Meaning::Later => fail(
            seen,
            "Answer a do with 2xx (URL, credentials and --timeout must fit): nothing else can be checked.",
        ),
    }
}

/// Of requests under one key at once, and what those came to that were told to come again.
fn together(at_once: &[Answer], settled: &[Answer]) -> Judged {
    let shown: Vec<String> = at_once.iter().map(Answer::shown).collect();
    let mut seen = format!("the same key {} times at once: ", at_once.len());
    match shown.split_first() {
        Some((first, rest)) if rest.iter().all(|one| one == first) => {
            seen.push_str(&format!("{first} each time"));
        }
        _ => seen.push_str(&shown.join(", ")),
    }
    let again = at_once.iter().zip(settled);
    let again: Vec<String> = again
        .filter(|(before, _)| before.meaning() == Meaning::Later)
        .map(|(_, after)| after.shown())
        .collect();
    if !again.is_empty() {
        seen.push_str(&format!("; asked again: {}", again.join(", ")));
    }
    let first = &settled[0];
    let same = |answer: &Answer| answer.meaning() == Meaning::Done && answer.same_as(first);
    if !settled.iter().all(same) {
        return fail(
            seen,
            "Let the database decide who was first (a unique key, inserted in the transaction of the work), and answer the others 409, 425 or 503 \
             until that is done, then as the first was answered: as it is, one key has more than one outcome.",
        );
    }
    let later = |answer: &&Answer| answer.meaning() == Meaning::Later;
    if at_once
        .iter()
        .filter(later)
        .all(|answer| answer.says_not_yet())
    {
        return pass(seen);
    }
    warn(
        seen,
        "Answer a request that comes while its twin is at work with 409, 425 or 503, best with Retry-After: this counts as a failure of the participant.",
    )
}

fn pass(seen: String) -> Judged {
    Judged {
        verdict: Verdict::Pass,
        seen,
        fix: None,
    }
}

fn warn(seen: String, fix: &'static str) -> Judged {
    Judged {
        verdict: Verdict::Warn,
        seen,
        fix: Some(fix),
    }
}

fn fail(seen: String, fix: &'static str) -> Judged {
    Judged {
        verdict: Verdict::Fail,
        seen,
        fix: Some(fix),
    }
}

// === impl Judged ===

impl Judged {
    fn named(self, check: &'static str) -> Found {
        Found {
            check,
            verdict: self.verdict,
            seen: self.seen,
            fix: self.fix.map(str::to_owned),
        }
    }
}
