//! The page for operators, where there is an API: static files, all of them in the binary.
//!
//! They hold no data and need no token: the page asks `/v1` with the one that its user types in. What stands in the database is never
//! markup to it, and the policy below is the second wall: no script but these, no other host, no frame around it.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use sha2::{Digest, Sha256};

use super::problem::Problem;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, content type, content.
type File = (&'static str, &'static str, &'static str);

const INDEX: File = (
    "",
    "text/html; charset=utf-8",
    include_str!("page/index.html"),
);

macro_rules! files {
    ($($kind:ident $name:literal),+ $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("page/", $name)))),+]
    };
}

const FILES: &[File] = files![
    STYLE "page.css",
    SCRIPT "api.js",
    SCRIPT "charts.js",
    SCRIPT "dialogs.js",
    SCRIPT "dom.js",
    SCRIPT "format.js",
    SCRIPT "icon.js",
    SCRIPT "main.js",
    SCRIPT "saga-dialogs.js",
    SCRIPT "table.js",
    SCRIPT "views/endpoints.js",
    SCRIPT "views/failures.js",
    SCRIPT "views/jobs.js",
    SCRIPT "views/message.js",
    SCRIPT "views/overview.js",
    SCRIPT "views/saga.js",
    SCRIPT "views/sagas.js",
    SCRIPT "views/search.js",
    SCRIPT "vendor/uplot/uPlot.iife.min.js",
    STYLE "vendor/uplot/uPlot.min.css",
];

/// What a browser knows each file by, so that it is sent once.
static TAGS: LazyLock<HashMap<&str, HeaderValue>> = LazyLock::new(|| {
    let tag = |(name, _, content): &File| {
        let digest = Sha256::digest(content);
        let digest: String = digest[..12].iter().map(|b| format!("{b:02x}")).collect();
        Some((*name, HeaderValue::try_from(format!("\"{digest}\"")).ok()?))
    };
    FILES.iter().chain([&INDEX]).filter_map(tag).collect()
});

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| send(&INDEX, &headers)))
        .route("/page/{*name}", get(file))
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(file) => send(file, &headers),
        None => Problem::missing("there is nothing here").into_response(),
    }
}

fn send((name, kind, content): &File, headers: &HeaderMap) -> Response {
    let tag = TAGS.get(name);
    let known = headers.get(header::IF_NONE_MATCH);
    let known = known.and_then(|known| known.to_str().ok());
    let tags = tag.and_then(|tag| tag.to_str().ok()).zip(known);
    let mut response = if tags.is_some_and(|(tag, known)| known.contains(tag)) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, *kind)], *content).into_response()
    };
    let fields = response.headers_mut();
    if let Some(tag) = tag {
        fields.insert(header::ETAG, tag.clone());
    }
    // Asked for again each time: a new version of the relay has new files.
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    response
}
