//! What can be done.

use axum::{
    Json,
    extract::{FromRequest, Request, State as Given},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    super::callers::Operator,
    Api, Problem,
    read::{Of, of},
};
use crate::store::{Filter, Mandate, Verb};

type Answer = Result<Json<Value>, Problem>;

/// A JSON object, or nothing where all of it may be left out.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Body<T>, Problem> {
        let bytes = axum::body::Bytes::from_request(request, api)
            .await
            .map_err(|error| Problem::new(error.status(), error.body_text()))?;
        let bytes = match bytes.trim_ascii() {
            b"" => b"{}",
            // An array would be taken for the members in their order.
            bytes @ [b'{', ..] => bytes,
            _ => return Err(Problem::bad("the body: a JSON object is expected")),
        };
        serde_json::from_slice(bytes)
            .map(Body)
            .map_err(|error| Problem::bad(format!("the body: {error}")))
    }
}

/// Why something is done: kept in the history, or with the endpoint.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reasoned {
    pub(super) why: Option<String>,
}

/// An object without members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Of one message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replayed {
    endpoint: Option<String>,
    #[serde(default)]
    delivered: bool,
    #[serde(default)]
    new_key: bool,
    why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Discarded {
    endpoint: Option<String>,
    why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Released {
    topic: String,
    key: String,
    endpoint: Option<String>,
    why: Option<String>,
}

/// Of many messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begun {
    verb: String,
    #[serde(default)]
    filter: Filter,
    /// All there are is meant, where the filter lets all pass.
    #[serde(default)]
    all: bool,
    #[serde(default)]
    delivered: bool,
    #[serde(default)]
    new_key: bool,
    rate: Option<f64>,
    why: Option<String>,
}

pub(super) async fn replay(
    Given(api): Given<Api>,
    Operator(by): Operator,
    id: Of<Uuid>,
    Body(body): Body<Replayed>,
) -> Answer {
    let id = of(id)?;
    let mandate = mandate(&by, body.why.as_deref());
    let endpoint = body.endpoint.as_deref();
    let replayed = api
        .acts
        .replay(id, endpoint, body.delivered, body.new_key, mandate);
    match replayed.await? {
        (ids, 0) if ids.is_empty() => Err(Problem::missing(match body.delivered {
            true => format!("{id} was not delivered, or is not kept any more"),
            false => format!(
                "{id} is not dead; what was delivered is sent again with \"delivered\": true"
            ),
        })),
        (ids, pending) => Ok(Json(json!({ "replayed": ids, "pending": pending }))),
    }
}

pub(super) async fn discard(
    Given(api): Given<Api>,
    Operator(by): Operator,
    id: Of<Uuid>,
    Body(body): Body<Discarded>,
) -> Answer {
    let id = of(id)?;
    let mandate = mandate(&by, body.why.as_deref());
    let discarded = api.acts.discard(id, body.endpoint.as_deref(), mandate);
    match discarded.await? {
        0 => Err(Problem::missing(format!("{id} is not dead"))),
        many => Ok(Json(json!({ "discarded": many }))),
    }
}

pub(super) async fn cancel(
    Given(api): Given<Api>,
    Operator(by): Operator,
    id: Of<Uuid>,
    Body(body): Body<Reasoned>,
) -> Answer {
    let id = of(id)?;
    let mandate = mandate(&by, body.why.as_deref());
    match api.acts.cancel(id, mandate).await? {
        (0, 0) => Err(not_pending(id)),
        (0, in_flight) => Err(Problem::new(
            StatusCode::CONFLICT,
            format!("{id}: {in_flight} on its way, which can't be taken back"),
        )),
        (cancelled, in_flight) => Ok(Json(
            json!({ "cancelled": cancelled, "in_flight": in_flight }),
        )),
    }
}

pub(super) async fn release_key(
    Given(api): Given<Api>,
    Operator(by): Operator,
    Body(body): Body<Released>,
) -> Answer {
    let mandate = mandate(&by, body.why.as_deref());
    let endpoint = body.endpoint.as_deref();
    let released = api
        .acts
        .release_key(&body.topic, &body.key, endpoint, mandate);
    match released.await? {
        0 => Err(Problem::missing("no dead message holds this key there")),
        many => Ok(Json(json!({ "released": many }))),
    }
}

pub(super) async fn start_job(
    Given(api): Given<Api>,
    Operator(by): Operator,
    Body(body): Body<Begun>,
) -> Result<Response, Problem> {
    let verb = match body.verb.as_str() {
        "replay" => Verb::Replay {
            delivered: body.delivered,
            new_key: body.new_key,
            rate: body.rate,
        },
        "discard" if body.delivered || body.new_key || body.rate.is_some() => {
            return Err(Problem::bad(
                "delivered, new_key and rate are of a replay, not of a discard",
            ));
        }
        "discard" => Verb::Discard,
        other => {
            return Err(Problem::bad(format!(
                "verb: replay or discard, not {other:?}"
            )));
        }
    };
    if body.filter.is_empty() && !body.all {
        return Err(Problem::bad("filter: say which messages, or \"all\": true"));
    }
    let mandate = mandate(&by, body.why.as_deref());
    let job = api
        .acts
        .start_job(verb, &body.filter, mandate, true)
        .await?;
    api.begun.notify_one();
    let place = [(header::LOCATION, format!("/v1/jobs/{job}"))];
    let begun = api.acts.jobs(Some(job), 1).await?.pop();
    Ok((StatusCode::ACCEPTED, place, Json(json!(begun))).into_response())
}

pub(super) async fn abort_job(
    Given(api): Given<Api>,
    _: Operator,
    job: Of<i64>,
    Body(Nothing {}): Body<Nothing>,
) -> Answer {
    let job = of(job)?;
    match api.acts.abort_job(job).await? {
        None => Err(Problem::missing(format!("there is no job {job}"))),
        Some(was_running) => Ok(Json(json!({ "was_running": was_running }))),
    }
}

pub(super) async fn pause(
    Given(api): Given<Api>,
    Operator(by): Operator,
    endpoint: Of<String>,
    Body(body): Body<Reasoned>,
) -> Answer {
    let endpoint = of(endpoint)?;
    let mandate = mandate(&by, body.why.as_deref());
    changed(&endpoint, api.acts.pause(&endpoint, mandate).await?)
}

pub(super) async fn resume(
    Given(api): Given<Api>,
    Operator(by): Operator,
    endpoint: Of<String>,
    Body(body): Body<Reasoned>,
) -> Answer {
    let endpoint = of(endpoint)?;
    let mandate = mandate(&by, body.why.as_deref());
    changed(&endpoint, api.acts.resume(&endpoint, mandate).await?)
}

fn changed(endpoint: &str, changed: Option<bool>) -> Answer {
    match changed {
        None => Err(Problem::missing(format!(
            "no relay ever had an endpoint {endpoint:?}"
        ))),
        Some(changed) => Ok(Json(json!({ "changed": changed }))),
    }
}

fn not_pending(id: Uuid) -> Problem {
    Problem::missing(format!(
        "no message {id} is pending: it is delivered, dead, or was never there"
    ))
}

pub(super) fn mandate<'a>(by: &'a str, why: Option<&'a str>) -> Mandate<'a> {
    Mandate { by: Some(by), why }
}
