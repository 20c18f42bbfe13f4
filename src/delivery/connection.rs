//! The HTTP client of an endpoint: its settings, and its connections, which no other endpoint shares.
//!
//! When a certificate changes there is a new client with new connections; requests in flight finish on the old one, which
//! goes when the last of them has its answer.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::redirect;
use tower::{layer::layer_fn, util::MapRequest};

use super::{
    Endpoint, HttpVersion,
    file::{Content, Watched},
    guard::{Lookup, Resolver},
    proxy, tls,
};

/// How long a connection may lie idle before we close it.
///
/// A receiver that closes an idle connection just when a request is on its way makes that request fail, and nobody can
/// tell whether it was read. Many servers close after 5 s (Node.js, Apache, uvicorn), so we are a little earlier; those
/// that wait for longer lose nothing, since a connection that is in use every few seconds stays open anyway.
const IDLE: Duration = Duration::from_millis(4500);

/// What receivers see as `User-Agent`.
const USER_AGENT: &str = concat!("outbox-relay/", env!("CARGO_PKG_VERSION"));

/// A client for the files of now; `connects` counts the connections that are begun, `lookup` is what the guard checks.
pub(super) fn pool(
    endpoint: &Endpoint,
    connects: &Arc<AtomicU64>,
    lookup: Lookup,
) -> Result<Watched<reqwest::Client>, String> {
    let secure = endpoint.is_secure();
    let mut files = if secure {
        endpoint.tls.files()
    } else {
        Vec::new()
    };
    // The last, where there is one.
    files.extend(
        endpoint
            .proxy
            .iter()
            .flat_map(|proxy| proxy.auth_file.clone()),
    );
    let (settings, connects) = (endpoint.clone(), connects.clone());
    Watched::new(&endpoint.name, files, move |files| {
        client(&settings, secure, &connects, &lookup, files)
    })
}

fn client(
    endpoint: &Endpoint,
    secure: bool,
    connects: &Arc<AtomicU64>,
    lookup: &Lookup,
    files: &[Content],
) -> Result<reqwest::Client, String> {
    let proxied = usize::from(
        endpoint
            .proxy
            .as_ref()
            .is_some_and(|proxy| proxy.auth_file.is_some()),
    );
    let (certificates, credentials) = files.split_at(files.len() - proxied);
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        // A page that answers 200 somewhere else is no delivery; and a key sent there would be given away.
        .redirect(redirect::Policy::none())
        .referer(false)
        // A variable of the environment must not decide where payloads go.
        .no_proxy()
        // The excerpt is what was sent. Unpacked, a few kilobytes can be gigabytes.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .tcp_nodelay(true)
        .connect_timeout(endpoint.connect_timeout)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(endpoint.concurrency);
    // reqwest's default retry policy stays. It sends again only what an HTTP/2 receiver says it has not looked at
    // (REFUSED_STREAM, or a GOAWAY without an error that names an earlier stream), at most twice and within the same
    // deadline. Every deployment of a receiver sends such a GOAWAY: without this it would cost attempts. (A body in
    // parts can't be sent again by it: that one does cost an attempt.)
    builder = if secure {
        tls::apply(&endpoint.tls, builder, certificates)?
    } else {
        // Redirects are not followed, so no certificate is ever looked at: http works in an image without any, and
        // nobody waits for a hundred of them to be parsed.
        builder.tls_certs_only([])
    };
    builder = match endpoint.http_version {
        HttpVersion::Negotiated => builder,
        HttpVersion::Http1 => builder.http1_only(),
        HttpVersion::Http2 => builder.http2_prior_knowledge(),
    };
    if let Some(config) = &endpoint.proxy {
        builder = proxy::apply(config, builder, credentials)?;
    }
    if let Some(resolver) = Resolver::new(&endpoint.guard, lookup.clone()) {
        builder = builder.dns_resolver(resolver);
    }
    let counted = connects.clone();
    builder
        .connector_layer(layer_fn(move |connector| {
            let counted = counted.clone();
            MapRequest::new(connector, move |target| {
                counted.fetch_add(1, Ordering::Relaxed);
                target
            })
        }))
        .build()
        .map_err(|error| {
            let cause = error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string);
            format!("cannot set up its HTTP client: {cause}")
        })
}
