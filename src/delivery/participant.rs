//! What a participant of a saga is told beside the body: which step of which saga this is, and what is asked. Pure.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::headers::{ascii, encoded};
use crate::saga::Step;

const ID: HeaderName = HeaderName::from_static("saga-id");
const NAME: HeaderName = HeaderName::from_static("saga-name");
const STEP: HeaderName = HeaderName::from_static("saga-step");
const PHASE: HeaderName = HeaderName::from_static("saga-phase");
const ATTEMPT: HeaderName = HeaderName::from_static("saga-attempt");
const DEADLINE: HeaderName = HeaderName::from_static("saga-deadline");
const FORWARD_OUTCOME: HeaderName = HeaderName::from_static("saga-forward-outcome");

/// Adds the headers of a step, of which this is the `attempt`.
pub(super) fn add(headers: &mut HeaderMap, step: &Step, attempt: u32) {
    headers.insert(ID, ascii(step.saga.hyphenated().to_string()));
    headers.insert(NAME, encoded(&step.name));
    headers.insert(STEP, encoded(&step.step));
    headers.insert(PHASE, HeaderValue::from_static(step.phase.as_str()));
    headers.insert(ATTEMPT, attempt.into());
    if let Some(deadline) = &step.deadline {
        headers.insert(DEADLINE, encoded(deadline));
    }
    if let Some(forward) = step.forward {
        headers.insert(FORWARD_OUTCOME, HeaderValue::from_static(forward.as_str()));
    }
}
