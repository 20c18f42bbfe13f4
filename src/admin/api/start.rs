//! Sagas that somebody starts instead of inserting them.

use std::collections::BTreeMap;

use axum::{
    extract::{Request, State as Given},
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    Api, Problem,
    insert::{accepted, delay, object, sender, time, writes},
};
use crate::store::{Accepted, Error, Requested, StartedSaga};

/// A saga as it is posted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted<'b> {
    name: String,
    key: Option<String>,
    #[serde(borrow)]
    input: Option<&'b RawValue>,
    steps: Option<Value>,
    headers: Option<BTreeMap<String, String>>,
    deadline_at: Option<String>,
    deadline_in: Option<String>,
}

pub(super) async fn start(Given(api): Given<Api>, request: Request) -> Result<Response, Problem> {
    let writes = writes(&api)?;
    let (caller, request_key, body) = sender(&api, writes, request).await?;
    let posted: Posted<'_> = object(&body)?;
    let key = posted.key.as_deref().or(request_key.as_deref());
    let key = key.ok_or_else(|| Problem::bad("key: is missing, and so is Idempotency-Key"))?;
    if posted.deadline_at.is_some() && posted.deadline_in.is_some() {
        return Err(Problem::bad(
            "deadline_at, deadline_in: at most one of the two",
        ));
    }
    let deadline_at = time("deadline_at", posted.deadline_at.as_deref())?;
    let deadline_in = posted
        .deadline_in
        .as_deref()
        .map(|text| delay("deadline_in", text));
    let headers = posted.headers.map(|headers| json!(headers));
    let digest: [u8; 32] = Sha256::digest(&body).into();
    let requested = Requested {
        caller: &caller,
        key: request_key.as_deref(),
        digest: &digest,
    };
    let saga = StartedSaga {
        name: &posted.name,
        key,
        input: posted.input.map(RawValue::get),
        steps: posted.steps.as_ref(),
        headers: headers.as_ref(),
        deadline_in: deadline_in.transpose()?,
        deadline_at: deadline_at.as_deref(),
    };
    let started = match writes.store.start_saga(requested, saga).await {
        Err(Error::Statement {
            state: Some(state), ..
        }) if state == "23505" => Ok(Accepted::OtherRequest),
        started => started,
    };
    let other = "Idempotency-Key or key: it was used for something else";
    accepted(started, "/v1/sagas/", other)
}
