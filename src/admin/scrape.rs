//! `/metrics`, for Prometheus.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{
    metrics::{Format, Metrics},
    store,
};

pub(super) fn router(metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics)
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    metrics.connections(store::connections());
    let text = metrics.text(format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}
