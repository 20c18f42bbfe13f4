//! Work of several steps: what can be asked for, and done.

use axum::{
    Json,
    extract::State as Given,
    http::header,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use uuid::Uuid;

use super::{
    super::callers::{Operator, Reader},
    Api, Problem,
    act::{Body, Reasoned, mandate},
    read::{Answer, Asked, Of, answer, asked, next, of, page},
};
use crate::store::{SagaFilter, SagaVerb};

/// Sagas in one request, where nobody says.
const PIECE: i32 = 100;

/// Of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SagasQuery {
    name: Option<String>,
    key: Option<String>,
    status: Option<String>,
    step: Option<String>,
    error: Option<String>,
    since: Option<String>,
    until: Option<String>,
    after: Option<String>,
    limit: Option<i32>,
}

/// Of a count.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountQuery {
    name: Option<String>,
    key: Option<String>,
    status: Option<String>,
    step: Option<String>,
    error: Option<String>,
    since: Option<String>,
    until: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resumed {
    #[serde(default)]
    new_key: bool,
    why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rerun {
    step: Option<String>,
    input: Option<Box<RawValue>>,
    why: Option<String>,
}

/// Of many sagas.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meant {
    verb: String,
    #[serde(default)]
    filter: SagaFilter,
    /// All there are is meant, where the filter lets all pass.
    #[serde(default)]
    all: bool,
    #[serde(default)]
    new_key: bool,
    step: Option<String>,
    input: Option<Box<RawValue>>,
    why: Option<String>,
    after: Option<String>,
    limit: Option<i32>,
}

pub(super) async fn list(Given(api): Given<Api>, _: Reader, query: Asked<SagasQuery>) -> Answer {
    let query = asked(query)?;
    let (after, limit) = page(query.after.as_deref(), query.limit)?;
    let filter = SagaFilter {
        name: query.name,
        key: query.key,
        status: query.status,
        step: query.step,
        error: query.error,
        since: query.since,
        until: query.until,
    };
    let sagas = api.store.find_sagas(&filter, after.as_ref(), limit).await?;
    let last = sagas.last().map(|saga| &saga.place);
    let next = next(last, sagas.len(), limit);
    Ok(Json(json!({ "sagas": sagas, "next": next })))
}

pub(super) async fn matching(
    Given(api): Given<Api>,
    _: Reader,
    query: Asked<CountQuery>,
) -> Answer {
    let query = asked(query)?;
    let filter = SagaFilter {
        name: query.name,
        key: query.key,
        status: query.status,
        step: query.step,
        error: query.error,
        since: query.since,
        until: query.until,
    };
    answer(&api.store.matching_sagas(&filter).await?)
}

pub(super) async fn show(
    Given(api): Given<Api>,
    _: Reader,
    id: Of<Uuid>,
) -> Result<Response, Problem> {
    let id = of(id)?;
    let life = api.store.show_saga(id).await?;
    let life = life.ok_or_else(|| Problem::missing(format!("there is no saga {id}")))?;
    // As it is: input and outputs keep their digits.
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, life.get().to_owned()).into_response())
}

pub(super) async fn resume(
    given: Given<Api>,
    by: Operator,
    id: Of<Uuid>,
    Body(body): Body<Resumed>,
) -> Answer {
    let new_key = body.new_key;
    act(given, by, id, SagaVerb::Resume { new_key }, body.why).await
}

pub(super) async fn skip(
    given: Given<Api>,
    by: Operator,
    id: Of<Uuid>,
    Body(body): Body<Reasoned>,
) -> Answer {
    act(given, by, id, SagaVerb::Skip, body.why).await
}

pub(super) async fn cancel(
    given: Given<Api>,
    by: Operator,
    id: Of<Uuid>,
    Body(body): Body<Reasoned>,
) -> Answer {
    act(given, by, id, SagaVerb::Cancel, body.why).await
}

pub(super) async fn rerun(
    given: Given<Api>,
    by: Operator,
    id: Of<Uuid>,
    Body(body): Body<Rerun>,
) -> Answer {
    let input = body.input.map(|input| input.get().to_owned());
    let verb = SagaVerb::Rerun {
        step: body.step,
        input,
    };
    act(given, by, id, verb, body.why).await
}

async fn act(
    Given(api): Given<Api>,
    Operator(by): Operator,
    id: Of<Uuid>,
    verb: SagaVerb,
    why: Option<String>,
) -> Answer {
    let mandate = mandate(&by, why.as_deref());
    let status = api.acts.act_on_saga(of(id)?, &verb, mandate).await?;
    Ok(Json(json!({ "status": status })))
}

pub(super) async fn act_on_many(
    Given(api): Given<Api>,
    Operator(by): Operator,
    Body(body): Body<Meant>,
) -> Answer {
    let verb = match body.verb.as_str() {
        "resume" => SagaVerb::Resume {
            new_key: body.new_key,
        },
        "skip" => SagaVerb::Skip,
        "cancel" => SagaVerb::Cancel,
        "rerun" => SagaVerb::Rerun {
            step: body.step.clone(),
            input: body.input.as_ref().map(|input| input.get().to_owned()),
        },
        other => {
            return Err(Problem::bad(format!(
                "verb: resume, skip, cancel or rerun, not {other:?}"
            )));
        }
    };
    let rerun = body.step.is_some() || body.input.is_some();
    if rerun && body.verb != "rerun" || body.new_key && body.verb != "resume" {
        return Err(Problem::bad(
            "new_key is of a resume, step and input are of a rerun",
        ));
    }
    if body.filter.is_empty() && !body.all {
        return Err(Problem::bad("filter: say which sagas, or \"all\": true"));
    }
    // What no saga is meant by, the database would not refuse.
    for (name, text) in [("why", &body.why), ("step", &body.step)] {
        if text.as_deref().is_some_and(|text| text.contains('\0')) {
            return Err(Problem::bad(format!("{name}: no NUL")));
        }
    }
    let (after, limit) = page(body.after.as_deref(), Some(body.limit.unwrap_or(PIECE)))?;
    let mandate = mandate(&by, body.why.as_deref());
    let acted = api
        .acts
        .act_on_sagas(&body.filter, &verb, mandate, after.as_ref(), limit)
        .await?;
    let next = acted.next.map(|place| place.to_string());
    Ok(Json(
        json!({ "done": acted.done, "refused": acted.refused, "next": next }),
    ))
}
