//! `/livez`, `/startupz` and `/readyz`, as Kubernetes' probes want them: 200 is yes, 503 is no, and the body says why.

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Map, Value, json};

use crate::relay::Vitals;

pub(super) fn router(vitals: Vitals) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/startupz", get(startupz))
        .route("/readyz", get(readyz))
        .with_state(vitals)
}

/// Whether the loop turns: no means that only a restart helps.
async fn livez(State(vitals): State<Vitals>) -> Response {
    let live = vitals.live();
    answer(live.is_ok(), &json!({ "loop": ok_or(live.err()) }))
}

/// Whether it was registered once.
async fn startupz(State(vitals): State<Vitals>) -> Response {
    let started = vitals.started();
    let problem = (!started).then(|| "not registered in the database yet".to_owned());
    answer(started, &json!({ "registered": ok_or(problem) }))
}

/// Whether it can deliver.
async fn readyz(State(vitals): State<Vitals>) -> Response {
    let checks = vitals.ready();
    let ready = checks.iter().all(|check| check.problem.is_none());
    let checks: Map<String, Value> = checks
        .into_iter()
        .map(|check| (check.name.to_owned(), ok_or(check.problem).into()))
        .collect();
    answer(ready, &checks.into())
}

fn ok_or(problem: Option<String>) -> String {
    problem.unwrap_or_else(|| "ok".into())
}

fn answer(good: bool, checks: &Value) -> Response {
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = json!({ "ok": good, "checks": checks });
    (status, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
}
