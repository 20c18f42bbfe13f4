//! What is seen at a glance: charts and groups of failures.

use std::{collections::BTreeMap, time::Duration};

use axum::{Json, extract::State as Given};
use serde::Deserialize;
use serde_json::json;

use super::{
    super::callers::{Caller, Reader},
    Api,
    read::{Answer, Asked, answer, asked},
};
use crate::{maintenance::Seen, store::Overview};

/// Attempts that are read of each of up to 91 pieces of time.
const IN_A_PIECE: i32 = 500;

/// Failures that are read.
const FAILURES: i32 = 10_000;

/// Groups of them that are shown.
const GROUPS: i32 = 200;

/// Of the overview.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverviewQuery {
    since: Option<String>,
}

/// Of failures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailuresQuery {
    since: Option<String>,
    endpoint: Option<String>,
}

/// Whose token it is.
pub(super) async fn me(Caller(name, role): Caller) -> Json<serde_json::Value> {
    Json(json!({ "name": name, "role": role }))
}

pub(super) async fn overview(
    Given(api): Given<Api>,
    _: Reader,
    query: Asked<OverviewQuery>,
) -> Answer {
    let query = asked(query)?;
    let overview = api
        .store
        .overview(query.since.as_deref(), IN_A_PIECE)
        .await?;
    let length = Duration::try_from_secs_f64(overview.now - overview.first).unwrap_or_default();
    let backlog = backlog(&overview, &api.trail.lately(length));
    let mut answer = serde_json::to_value(overview).unwrap_or_default();
    answer["backlog"] = backlog;
    Ok(Json(answer))
}

pub(super) async fn failures(
    Given(api): Given<Api>,
    _: Reader,
    query: Asked<FailuresQuery>,
) -> Answer {
    let query = asked(query)?;
    let (since, endpoint) = (query.since.as_deref(), query.endpoint.as_deref());
    let found = api.store.failures(since, endpoint, FAILURES, GROUPS);
    answer(&found.await?)
}

/// What this relay saw of the backlog: of each piece of time the most.
fn backlog(overview: &Overview, trail: &[Seen]) -> serde_json::Value {
    let mut most: BTreeMap<(u64, &str), (f64, i64, f64)> = BTreeMap::new();
    for seen in trail {
        // The relay's clock may be another one than the database's: only ages are taken from it.
        let at = overview.now - seen.at.elapsed().as_secs_f64();
        let at = overview.first + ((at - overview.first) / overview.step).floor() * overview.step;
        for backlog in seen.backlogs.iter() {
            let most = most
                .entry((at.to_bits(), &backlog.endpoint))
                .or_insert((at, 0, 0.0));
            most.1 = most.1.max(backlog.messages);
            most.2 = most.2.max(backlog.oldest);
        }
    }
    most.into_iter()
        .map(|((_, endpoint), (at, messages, oldest))| {
            json!({ "at": at, "endpoint": endpoint, "messages": messages, "oldest": oldest })
        })
        .collect()
}
