//! The participant as a saga sees it: what it is sent, and what its answers mean.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::Probe;
use crate::{
    cli::Failure,
    delivery::{Client, Endpoint},
    message::{Class, Delivery, Outcome},
    saga::{self, Forward, Phase, Step},
};

/// "Not yet" is believed so many times.
const TRIES: u32 = 6;

/// The pause after a "not yet" that does not say for how long.
const PAUSE: Duration = Duration::from_millis(250);

/// No pause is longer, whatever the participant asks for.
const LONGEST: Duration = Duration::from_secs(5);

/// One request of a step: sent again it is the same but for its number.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) saga: Uuid,
    pub(super) phase: Phase,
    pub(super) key: Uuid,
    pub(super) input: Value,
    /// What the do was answered, for an undo; `None`: nobody knows whether it was done.
    pub(super) output: Option<Value>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: Option<u16>,
    class: Class,
    /// As much of its body as a history would keep.
    body: String,
    error: String,
    retry_after: Option<Duration>,
}

/// What the relay makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// 2xx.
    Done,
    /// 410.
    Gone,
    /// A no for good: it is not asked again.
    Refused,
    /// It is asked again.
    Later,
}

/// Both ends of a step.
pub(super) struct Participant {
    forward: Endpoint,
    back: Option<Endpoint>,
    saga: String,
    step: String,
}

// === impl Participant ===

impl Participant {
    pub(super) fn new(probe: &Probe) -> Result<Participant, Failure> {
        let forward = probe.endpoint(&probe.url);
        let back = probe.undo.as_ref().map(|url| probe.endpoint(url));
        // What is wrong with a URL or a file is said before anything is sent.
        for endpoint in [Some(&forward), back.as_ref()].into_iter().flatten() {
            Client::new(endpoint).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        Ok(Participant {
            forward,
            back,
            saga: probe.saga.clone(),
            step: probe.step.clone(),
        })
    }

    /// Whether it is known where its undo goes.
    pub(super) fn undoes(&self) -> bool {
        self.back.is_some()
    }

    /// Sends it once.
    pub(super) async fn send(&self, call: &Call, attempt: u32) -> Answer {
        let endpoint = match (call.phase, &self.back) {
            (Phase::Undo, Some(back)) => back,
            (Phase::Do | Phase::Undo, _) => &self.forward,
        };
        let step = self.step(call, endpoint.timeout);
        match Client::new(endpoint) {
            Ok(client) => {
                let delivery = self.delivery(call, attempt, step);
                client.attempt(&delivery).await.into()
            }
            // A file that was there a moment ago.
            Err(error) => Answer {
                status: None,
                class: Class::Unsendable,
                body: String::new(),
                error: error.to_string(),
                retry_after: None,
            },
        }
    }

    /// The same, again for as long as it says "not yet", beginning with this number.
    pub(super) async fn settle(&self, call: &Call, first: u32) -> Answer {
        let mut answer = self.send(call, first).await;
        for attempt in (first..first + TRIES).skip(1) {
            if answer.meaning() != Meaning::Later {
                break;
            }
            let pause = answer.retry_after.unwrap_or(PAUSE);
            sleep(pause.clamp(PAUSE, LONGEST)).await;
            answer = self.send(call, attempt).await;
        }
        answer
    }

    /// The step that it is asked for.
    fn step(&self, call: &Call, timeout: Duration) -> Step {
        // There is no database here whose clock would be the one.
        let deadline = Timestamp::now().saturating_add(timeout).ok();
        let mut step = Step::new(call.saga, &self.saga, &self.step, call.phase);
        step.deadline = deadline.map(|deadline| format!("{deadline:.3}"));
        step.forward = match (call.phase, &call.output) {
            (Phase::Do, _) => None,
            (Phase::Undo, Some(_)) => Some(Forward::Done),
            (Phase::Undo, None) => Some(Forward::Unknown),
        };
        step
    }

    /// As a row would have it.
    fn delivery(&self, call: &Call, attempt: u32, step: Step) -> Delivery {
        let mut outputs = Map::new();
        if let Some(output) = &call.output {
            outputs.insert(self.step.clone(), output.clone());
        }
        let body = match call.phase {
            Phase::Do => json!({"input": call.input, "outputs": outputs}),
            Phase::Undo => {
                json!({"input": call.input, "output": call.output, "outputs": outputs})
            }
        };
        Delivery {
            lease: 0,
            lane_endpoint: String::new(),
            id: call.key,
            topic: format!("{}{}", saga::TOPIC, self.saga),
            key: None,
            kind: None,
            body: Some(body.to_string().into()),
            content_type: Some("application/json".into()),
            headers: Vec::new(),
            seq: 0,
            attempts: attempt - 1,
            lost: 0,
            throttled: 0,
            generation: 0,
            sent_to: None,
            step: Some(Arc::new(step)),
            created_at: format!("{:.3}", Timestamp::now()),
            age: Duration::ZERO,
            expires_in: None,
        }
    }
}

// === impl Answer ===

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Answer {
        Answer {
            status: outcome.status,
            class: outcome.class,
            body: outcome.response.unwrap_or_default(),
            error: outcome.error.unwrap_or_default(),
            retry_after: outcome.retry_after,
        }
    }
}

impl Answer {
    pub(super) fn meaning(&self) -> Meaning {
        match self.class {
            // To an undo it is a success, too: which word it was is told all the same.
            Class::Success if self.status == Some(410) => Meaning::Gone,
            Class::Success => Meaning::Done,
            Class::Gone => Meaning::Gone,
            Class::Rejected => Meaning::Refused,
            _ => Meaning::Later,
        }
    }

    /// The step is undone, or there was nothing to undo.
    pub(super) fn undone(&self) -> bool {
        matches!(self.meaning(), Meaning::Done | Meaning::Gone)
    }

    /// A "not yet" that is meant for a request which came while its twin was at work.
    pub(super) fn says_not_yet(&self) -> bool {
        matches!(self.status, Some(409 | 423 | 425 | 429 | 503))
    }

    /// Whether somebody could tell the two apart: JSON by what it means, all else by its bytes.
    pub(super) fn same_as(&self, other: &Answer) -> bool {
        let same_body = match (self.output(), other.output()) {
            (Some(one), Some(two)) => one == two,
            _ => self.body == other.body,
        };
        self.status == other.status && same_body
    }

    /// What becomes the output of the step.
    pub(super) fn output(&self) -> Option<Value> {
        serde_json::from_str(&self.body).ok()
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        let body = self.body.trim();
        match self.status {
            Some(status) if self.class.is_answer() && body.is_empty() => status.to_string(),
            Some(status) if self.class.is_answer() => {
                format!("{status} {}", crate::cli::text::cut(body, 60))
            }
            _ => format!("no answer ({})", self.error),
        }
    }
}
