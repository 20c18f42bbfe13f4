//! Work of several steps: what a participant is told and what a plan may be. Pure.
//!
//! A *saga* is a row of `outbox.sagas`; each of its *steps* is a message that waits for its predecessor, asked to *do* or, on the way
//! back, to *undo*. What follows from what became of a step is decided where the saga is locked, in SQL
//! (`sql/functions/next_step.sql`): it may be cancelled, or late, while the answer is on its way.

mod plan;

use std::{fmt, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

pub use self::plan::{OnExhausted, Plan, Planned, name, path};

/// What the topics of steps begin with; the saga's name follows.
pub const TOPIC: &str = "saga:";

/// What a message is a step of, and how it is sent: the column `step` of its row.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Step {
    /// The saga.
    pub saga: Uuid,
    /// The saga's name.
    pub name: String,
    /// The step's name.
    pub step: String,
    /// How often the saga was run again before.
    #[serde(default)]
    pub generation: i32,
    /// What is asked.
    pub phase: Phase,
    /// What is added to the path of the endpoint's URL; begins with `/`, or is empty.
    pub path: String,
    /// When the saga goes back, if it is not past its pivot by then: RFC 3339.
    #[serde(default)]
    pub deadline: Option<String>,
    /// Of an undo: whether what is undone was done.
    #[serde(default)]
    pub forward: Option<Forward>,
    /// Another time-out than the endpoint's, in seconds.
    #[serde(default)]
    timeout: Option<f64>,
    /// The name of a retry policy that takes the endpoint's place.
    #[serde(default)]
    pub retry: Option<String>,
    /// 202 means: not yet.
    #[serde(default, rename = "async")]
    pub is_async: bool,
    /// By which its participant can say later that it is done, once.
    #[serde(default)]
    pub token: Option<String>,
    /// Seconds until the same is sent again after a 202.
    #[serde(default)]
    lapse: Option<f64>,
    /// Where its participant says how it stands: asked instead of sending the step again, until the lapse time is over.
    #[serde(default)]
    pub poll: Option<String>,
    /// Since when, in seconds of the database's clock.
    #[serde(default)]
    polled_since: Option<f64>,
}

/// What a participant is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// To do its part.
    Do,
    /// To undo it.
    Undo,
}

/// What is known of a step that is to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// It was done.
    Done,
    /// Its participant may have done it, or may yet.
    Unknown,
}

/// A poll without a `Retry-After` in the answer before is made after this.
pub const POLL: Duration = Duration::from_secs(5);

/// After a 202 without a `lapse` of its own, the same is sent again after this.
pub const LAPSE: Duration = Duration::from_secs(60 * 60);

// === impl Step ===

impl Step {
    /// A step with nothing but what each has. An empty `path` is that of its endpoint's URL.
    pub fn new(saga: Uuid, name: &str, step: &str, phase: Phase) -> Step {
        Step {
            saga,
            name: name.into(),
            step: step.into(),
            generation: 0,
            phase,
            path: String::new(),
            deadline: None,
            forward: None,
            timeout: None,
            retry: None,
            is_async: false,
            token: None,
            lapse: None,
            poll: None,
            polled_since: None,
        }
    }

    /// Reads the column; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Step, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// How long a request may take, where the step says so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.and_then(seconds)
    }

    /// After a 202: how long until the same is sent again.
    pub fn lapse(&self) -> Duration {
        self.lapse.and_then(seconds).unwrap_or(LAPSE)
    }

    /// Whether it is time to send the step itself again, at this moment of the database's clock.
    pub fn has_lapsed(&self, now: f64) -> bool {
        let since = self.polled_since.unwrap_or(now);
        now - since >= self.lapse().as_secs_f64()
    }

    /// Whether this status of a poll means that there is nothing to be asked any more: the step is sent again.
    pub fn is_lost_by(&self, status: Option<u16>) -> bool {
        self.poll.is_some() && matches!(status, Some(404 | 410))
    }

    /// Whether this status means that what is asked is done. After an undo, 410 says that there is nothing left of it.
    pub fn is_done_by(&self, status: u16) -> bool {
        status == 410 && self.phase == Phase::Undo && self.poll.is_none()
    }

    /// Whether this status means that the participant has yet to do it.
    pub fn is_begun_by(&self, status: Option<u16>) -> bool {
        self.is_async && status == Some(202)
    }
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

// === impl Phase, Forward ===

impl Phase {
    /// The word in SQL, headers and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Do => "do",
            Phase::Undo => "undo",
        }
    }
}

impl Forward {
    /// The word in SQL, headers and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Done => "done",
            Forward::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What of an answer becomes the output of its step: the body, if it is JSON that PostgreSQL takes, as it was written.
pub fn output(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    // Into strings and numbers, not over them: a lone surrogate, a NUL or a number beyond all bounds would be refused when it is
    // stored or taken apart, and with it the settle of all that goes with it.
    let value = serde_json::from_str(text).ok()?;
    (!has_nul(&value)).then_some(text)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_from_its_column() {
        let text = r#"{"saga": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "order", "step": "charge", "phase": "undo",
            "path": "/refund", "forward": "unknown", "timeout": 2.5, "deadline": "2026-01-02T03:04:05+00:00"}"#;
        let step = Step::parse(text).unwrap();
        assert_eq!(step.timeout(), Some(Duration::from_millis(2500)));
        assert_eq!(
            (step.phase, step.forward),
            (Phase::Undo, Some(Forward::Unknown))
        );
        assert_eq!((step.is_async, step.lapse()), (false, LAPSE));
        assert!(!step.is_lost_by(Some(404)), "it was no poll");
        assert!(step.is_done_by(410) && !step.is_done_by(404));
        assert!(!step.is_begun_by(Some(202)));
        let error = Step::parse(&text.replace("undo", "redo")).unwrap_err();
        assert!(error.contains("redo"), "{error}");
    }

    #[test]
    fn a_poll_lapses_and_what_it_asks_for_may_be_gone() {
        let text = r#"{"saga": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "order", "step": "charge", "phase": "undo",
            "path": "/refund", "async": true, "lapse": 60, "poll": "http://h/jobs/7", "polled_since": 1000.5}"#;
        let step = Step::parse(text).unwrap();
        assert!(!step.has_lapsed(1060.0) && step.has_lapsed(1061.0));
        assert!(
            step.is_lost_by(Some(410)) && !step.is_lost_by(Some(500)) && !step.is_lost_by(None)
        );
        assert!(!step.is_done_by(410), "the job is gone, not what was done");
    }

    #[test]
    fn a_410_is_no_answer_to_a_do() {
        let text = r#"{"saga": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "order", "step": "charge", "phase": "do",
            "path": "/charge", "async": true, "lapse": 0.5}"#;
        let step = Step::parse(text).unwrap();
        assert!(!step.is_done_by(410));
        assert!(step.is_begun_by(Some(202)) && !step.is_begun_by(Some(200)));
        assert_eq!(step.lapse(), Duration::from_millis(500));
    }

    #[test]
    fn an_output_is_json_as_it_was_written() {
        for text in [
            "{\"b\":1,\"a\":1.10}",
            " null ",
            "[]",
            "12345678901234567890.5",
        ] {
            assert_eq!(output(text.as_bytes()), Some(text));
        }
        for body in [
            &b""[..],
            b"ok",
            b"{",
            b"\xff",
            b"\"\\ud800\"",
            b"1e999",
            b"[\"a\\u0000\"]",
            b"{\"\\u0000\": 1}",
        ] {
            assert_eq!(output(body), None, "{body:?}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(output(deep.as_bytes()), None);
    }
}
