//! `/v1`: what operators see and do, as JSON. A skin over the store's methods, which the command line has as well.
//!
//! Every request but for the document that describes all this (`openapi.json`) bears a token (see `callers`); without token files
//! there is no `/v1`. What is signed bears its signature instead (see `signed`). Errors are problems (RFC 9457). Lists come
//! in pages: `next` of an answer is `after` of the next request. What changes something names its bearer in the history.

mod act;
mod glance;
mod insert;
mod read;
mod sagas;
mod start;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::sync::Notify;

use super::{callers::Callers, problem::Problem, webhooks::Hook};
use crate::{maintenance::Trail, relay::Vitals, store::Store};

/// What all requests share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) store: Store,
    /// For what changes something: whoever reads for long must not hold that up.
    pub(super) acts: Store,
    pub(super) callers: Arc<Callers>,
    /// For messages that are sent; `None`: nobody may send any.
    pub(super) writes: Option<Writes>,
    pub(super) hooks: Arc<Vec<Hook>>,
    /// What the sampler saw.
    pub(super) trail: Trail,
    /// There is a new job.
    pub(super) begun: Arc<Notify>,
}

/// How messages that are sent get into the database.
#[derive(Clone)]
pub(super) struct Writes {
    pub(super) store: Store,
    /// Bytes of a request's body.
    pub(super) max_body: usize,
    /// Whether this is the database that messages are delivered from.
    pub(super) vitals: Vitals,
}

pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/me", get(glance::me))
        .route("/v1/status", get(read::status))
        .route("/v1/alerts", get(read::alerts))
        .route("/v1/overview", get(glance::overview))
        .route("/v1/failures", get(glance::failures))
        .route("/v1/messages", get(read::list).post(insert::post))
        .route("/v1/messages/{id}", get(read::show))
        .route("/v1/messages/{id}/why", get(read::why))
        .route("/v1/messages/{id}/replay", post(act::replay))
        .route("/v1/messages/{id}/discard", post(act::discard))
        .route("/v1/messages/{id}/cancel", post(act::cancel))
        .route("/v1/webhooks/{name}", post(insert::webhook))
        .route("/v1/history", get(read::history))
        .route("/v1/matching", get(read::matching))
        .route("/v1/jobs", get(read::jobs).post(act::start_job))
        .route("/v1/jobs/{job}", get(read::job))
        .route("/v1/jobs/{job}/abort", post(act::abort_job))
        .route("/v1/keys/release", post(act::release_key))
        .route("/v1/endpoints/{endpoint}/pause", post(act::pause))
        .route("/v1/endpoints/{endpoint}/resume", post(act::resume))
        .route("/v1/sagas", get(sagas::list).post(start::start))
        .route("/v1/sagas/matching", get(sagas::matching))
        .route("/v1/sagas/act", post(sagas::act_on_many))
        .route("/v1/sagas/{id}", get(sagas::show))
        .route("/v1/sagas/{id}/resume", post(sagas::resume))
        .route("/v1/sagas/{id}/skip", post(sagas::skip))
        .route("/v1/sagas/{id}/cancel", post(sagas::cancel))
        .route("/v1/sagas/{id}/rerun", post(sagas::rerun))
        .route("/v1/openapi.json", get(openapi))
        .route("/v1/{*nothing}", get(nothing).post(nothing))
        .method_not_allowed_fallback(not_allowed)
        .layer(map_response(guarded))
        .with_state(api)
}

/// What this is, for programs (`OpenAPI` 3.1). Whoever may connect may read it.
async fn openapi() -> impl IntoResponse {
    const DOCUMENT: &str = include_str!("openapi.json");
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

/// Payloads stay in nobody's cache, and are what they are said to be.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

async fn nothing() -> Problem {
    Problem::missing("there is nothing here")
}

async fn not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path is asked for in another way",
    )
}
