//! What a participant of a saga is told beside the body: which step of which saga this is, and what is asked. Pure.

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::headers::{ascii, encoded};
use crate::saga::Step;

const ID: HeaderName = HeaderName::from_static("saga-id");
const NAME: HeaderName = HeaderName::from_static("saga-name");
const STEP: HeaderName = HeaderName::from_static("saga-step");
const GENERATION: HeaderName = HeaderName::from_static("saga-generation");
const PHASE: HeaderName = HeaderName::from_static("saga-phase");
const ATTEMPT: HeaderName = HeaderName::from_static("saga-attempt");
const DEADLINE: HeaderName = HeaderName::from_static("saga-deadline");
const TOKEN: HeaderName = HeaderName::from_static("saga-token");
const CALLBACK: HeaderName = HeaderName::from_static("saga-callback");
const FORWARD_OUTCOME: HeaderName = HeaderName::from_static("saga-forward-outcome");

/// Adds the headers of a step, of which this is the `attempt`; it can be answered later at a path below `callbacks`.
pub(super) fn add(headers: &mut HeaderMap, step: &Step, attempt: u32, callbacks: Option<&Url>) {
    headers.insert(ID, ascii(step.saga.hyphenated().to_string()));
    headers.insert(NAME, encoded(&step.name));
    headers.insert(STEP, encoded(&step.step));
    headers.insert(GENERATION, step.generation.into());
    headers.insert(PHASE, HeaderValue::from_static(step.phase.as_str()));
    headers.insert(ATTEMPT, attempt.into());
    if let Some(deadline) = &step.deadline {
        headers.insert(DEADLINE, encoded(deadline));
    }
    if let Some(token) = &step.token {
        headers.insert(TOKEN, secret(token));
        if let Some(base) = callbacks {
            let base = base.as_str().trim_end_matches('/');
            headers.insert(CALLBACK, secret(&format!("{base}/v1/callbacks/{token}")));
        }
    }
    if let Some(forward) = step.forward {
        headers.insert(FORWARD_OUTCOME, HeaderValue::from_static(forward.as_str()));
    }
}

/// Whoever knows it can answer for the participant.
fn secret(text: &str) -> HeaderValue {
    let mut value = encoded(text);
    value.set_sensitive(true);
    value
}
