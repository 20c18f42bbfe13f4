//! Where participants of sagas answer asynchronous steps later. Who knows a step's token may: it is good once, for that step.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State as Given},
    http::{HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
    routing::post,
};
use serde_json::{Value, json};

use super::problem::Problem;
use crate::{saga, store::Store};

/// Bytes of an output at most.
const LARGEST: usize = 64 * 1024;

type Answer = Result<Json<Value>, Problem>;

pub(super) fn router(store: Store) -> Router {
    Router::new()
        .route("/v1/callbacks/{token}", post(done))
        .route("/v1/callbacks/{token}/refuse", post(refuse))
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(map_response(guarded))
        .with_state(store)
}

async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The step is done; the body is its output, JSON or nothing.
async fn done(Given(store): Given<Store>, Path(token): Path<String>, body: Bytes) -> Answer {
    let output = match body.trim_ascii() {
        b"" => None,
        body => Some(
            saga::output(body)
                .ok_or_else(|| Problem::bad("the body: JSON is expected, or nothing"))?,
        ),
    };
    answer(&store, &token, false, output, None).await
}

/// The business says no; the body is a text that says why, or nothing.
async fn refuse(Given(store): Given<Store>, Path(token): Path<String>, body: Bytes) -> Answer {
    let text = String::from_utf8_lossy(&body).replace('\0', "\u{FFFD}");
    let text = text.trim();
    let error: String = text.chars().take(1000).collect();
    let error = Some(error).filter(|error| !error.is_empty());
    answer(&store, &token, true, None, error.as_deref()).await
}

async fn answer(
    store: &Store,
    token: &str,
    refused: bool,
    output: Option<&str>,
    error: Option<&str>,
) -> Answer {
    if token.contains('\0') {
        return Err(unknown());
    }
    match store.answer_step(token, refused, output, error).await? {
        None => Err(unknown()),
        Some(status) if status == "busy" => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the step is being sent once more just now: say it again in a moment",
        )),
        Some(status) => Ok(Json(json!({ "status": status }))),
    }
}

fn unknown() -> Problem {
    Problem::missing(
        "no step waits for this token: it was answered, or its saga went on without it",
    )
}
