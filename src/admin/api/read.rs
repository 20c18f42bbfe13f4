//! What can be asked for.

use axum::{
    Json,
    extract::{
        Path, Query, State as Given,
        rejection::{PathRejection, QueryRejection},
    },
    http::header,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    super::callers::{Knower, Reader},
    Api, Problem,
};
use crate::store::{Filter, Search, State, Verb};

/// Rows on a page, where nobody says.
const PAGE: i32 = 50;

/// ... and the most.
const LARGEST: i32 = 1000;

pub(super) type Answer = Result<Json<Value>, Problem>;
pub(super) type Of<T> = Result<Path<T>, PathRejection>;
pub(super) type Asked<T> = Result<Query<T>, QueryRejection>;

/// Of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    state: String,
    topic: Option<String>,
    endpoint: Option<String>,
    key: Option<String>,
    reason: Option<String>,
    status: Option<i32>,
    error: Option<String>,
    since: Option<String>,
    until: Option<String>,
    after: Option<String>,
    limit: Option<i32>,
}

/// Of the history.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    id: Option<Uuid>,
    topic: Option<String>,
    endpoint: Option<String>,
    key: Option<String>,
    outcome: Option<String>,
    settlement: Option<String>,
    status: Option<i32>,
    error: Option<String>,
    relay: Option<String>,
    #[serde(default)]
    failures: bool,
    slower: Option<f64>,
    attempt: Option<i32>,
    since: Option<String>,
    until: Option<String>,
    after: Option<String>,
    limit: Option<i32>,
}

/// Of what a job would meet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchingQuery {
    source: Option<String>,
    topic: Option<String>,
    endpoint: Option<String>,
    key: Option<String>,
    reason: Option<String>,
    status: Option<i32>,
    error: Option<String>,
    since: Option<String>,
    until: Option<String>,
}

pub(super) async fn status(Given(api): Given<Api>, _: Reader) -> Answer {
    answer(&api.store.status().await?)
}

pub(super) async fn alerts(Given(api): Given<Api>, _: Reader) -> Answer {
    Ok(Json(json!({ "alerts": api.store.alerts().await? })))
}

pub(super) async fn list(Given(api): Given<Api>, _: Reader, query: Asked<ListQuery>) -> Answer {
    let query = asked(query)?;
    let state = match query.state.as_str() {
        "pending" => State::Pending,
        "dead" => State::Dead,
        "delivered" => State::Delivered,
        other => {
            return Err(Problem::bad(format!(
                "state: pending, dead or delivered, not {other:?}"
            )));
        }
    };
    let (after, limit) = page(query.after.as_deref(), query.limit)?;
    let filter = Filter {
        topic: query.topic,
        endpoint: query.endpoint,
        key: query.key,
        reason: query.reason,
        status: query.status,
        error: query.error,
        since: query.since,
        until: query.until,
    };
    let rows = api
        .store
        .list(state, &filter, after.as_ref(), limit)
        .await?;
    let last = rows.last().map(|row| &row.place);
    let next = next(last, rows.len(), limit);
    Ok(Json(json!({ "messages": rows, "next": next })))
}

pub(super) async fn history(
    Given(api): Given<Api>,
    _: Reader,
    query: Asked<HistoryQuery>,
) -> Answer {
    let query = asked(query)?;
    let (after, limit) = page(query.after.as_deref(), query.limit)?;
    let search = Search {
        id: query.id,
        topic: query.topic,
        endpoint: query.endpoint,
        key: query.key,
        outcome: query.outcome,
        settlement: query.settlement,
        status: query.status,
        error: query.error,
        relay: query.relay,
        failures: query.failures,
        slower: query.slower,
        attempt: query.attempt,
        since: query.since,
        until: query.until,
    };
    let lines = api.store.history(&search, after.as_ref(), limit).await?;
    let last = lines.last().map(|line| &line.place);
    let next = next(last, lines.len(), limit);
    Ok(Json(json!({ "history": lines, "next": next })))
}

pub(super) async fn show(
    Given(api): Given<Api>,
    knower: Knower,
    id: Of<Uuid>,
) -> Result<Response, Problem> {
    /// What of a life its sender may know.
    #[derive(Deserialize, Serialize)]
    struct State {
        id: Uuid,
        state: String,
    }
    let id = of(id)?;
    let Some(life) = api.store.show(id).await? else {
        return Err(match api.store.accepted_at(id).await? {
            Some(at) => Problem::missing(format!(
                "message {id} is past retention: it was accepted at {at}, and nothing else is known of it any more"
            )),
            None => unknown(id),
        });
    };
    if !knower.reads {
        let state = serde_json::from_str::<State>(life.get());
        let state = state.map_err(|error| Problem::bad(error.to_string()))?;
        return Ok(Json(state).into_response());
    }
    // As it is: a payload keeps its digits.
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, life.get().to_owned()).into_response())
}

pub(super) async fn why(Given(api): Given<Api>, _: Reader, id: Of<Uuid>) -> Answer {
    let id = of(id)?;
    let why = api.store.why(id).await?;
    if why.is_empty() {
        return Err(unknown(id));
    }
    answer(&why)
}

pub(super) async fn matching(
    Given(api): Given<Api>,
    _: Reader,
    query: Asked<MatchingQuery>,
) -> Answer {
    let query = asked(query)?;
    let delivered = match query.source.as_deref() {
        None | Some("dead") => false,
        Some("delivered") => true,
        Some(other) => {
            return Err(Problem::bad(format!(
                "source: dead or delivered, not {other:?}"
            )));
        }
    };
    let verb = Verb::Replay {
        delivered,
        new_key: false,
        rate: None,
    };
    let filter = Filter {
        topic: query.topic,
        endpoint: query.endpoint,
        key: query.key,
        reason: query.reason,
        status: query.status,
        error: query.error,
        since: query.since,
        until: query.until,
    };
    answer(&api.store.matching(verb, &filter).await?)
}

pub(super) async fn jobs(Given(api): Given<Api>, _: Reader) -> Answer {
    answer(&api.store.jobs(None, PAGE).await?)
}

pub(super) async fn job(Given(api): Given<Api>, _: Reader, job: Of<i64>) -> Answer {
    let job = of(job)?;
    let found = api.store.jobs(Some(job), 1).await?.pop();
    answer(&found.ok_or_else(|| Problem::missing(format!("there is no job {job}")))?)
}

pub(super) fn page(
    after: Option<&str>,
    limit: Option<i32>,
) -> Result<(Option<Value>, i32), Problem> {
    let after = after.map(|after| match serde_json::from_str(after) {
        Ok(place @ Value::Array(_)) => Ok(place),
        _ => Err(Problem::bad(
            "after: what the page before calls next, as JSON",
        )),
    });
    let limit = limit.unwrap_or(PAGE);
    if !(1..=LARGEST).contains(&limit) {
        return Err(Problem::bad(format!("limit: from 1 to {LARGEST}")));
    }
    Ok((after.transpose()?, limit))
}

/// The place of the last row, as a string that can be sent back, if there may be more.
pub(super) fn next(place: Option<&Value>, rows: usize, limit: i32) -> Option<String> {
    place
        .filter(|_| i32::try_from(rows) == Ok(limit))
        .map(Value::to_string)
}

pub(super) fn answer<T: Serialize>(value: &T) -> Answer {
    let value = serde_json::to_value(value);
    value
        .map(Json)
        .map_err(|error| Problem::bad(error.to_string()))
}

pub(super) fn asked<T>(query: Asked<T>) -> Result<T, Problem> {
    query
        .map(|Query(query)| query)
        .map_err(|error| Problem::bad(error.body_text()))
}

/// What the path names.
pub(super) fn of<T>(path: Of<T>) -> Result<T, Problem> {
    path.map(|Path(path)| path)
        .map_err(|error| Problem::bad(error.body_text()))
}

pub(super) fn unknown(id: Uuid) -> Problem {
    Problem::missing(format!(
        "no message {id} is known: it was never committed, or its history is past retention"
    ))
}
