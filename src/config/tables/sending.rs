//! What an endpoint's requests look like: the keys that `[defaults]` may hold as well.

use std::path::PathBuf;

use reqwest::header::HeaderName;

use super::SECOND;
use crate::{
    config::{reader::Section, units},
    delivery::{
        Details, HttpVersion, headers,
        idempotency::{self, Format},
        sign::{self, Secret},
    },
    route::Routes,
};

const VERSION: &str = r#""1.1" or "2""#;

const HEADER: &str = r#"a header name such as "Idempotency-Key""#;

pub(super) fn sign(endpoint: &Section<'_>) -> sign::Config {
    let section = endpoint.section("sign");
    let secrets = section.secrets("secrets", r#"secrets such as "whsec_…""#, |text| {
        Secret::parse(text).map_err(|error| error.to_string())
    });
    let files = section.list(
        "secret_files",
        r#"paths such as "/run/secrets/billing""#,
        path,
    );
    if section.given() && secrets.is_none() && files.is_none() {
        let message = "would sign nothing: it needs secrets, or secret_files, or both";
        section.problem("secrets", message.into());
    }
    sign::Config {
        secrets: secrets.unwrap_or_default(),
        secret_files: files.unwrap_or_default(),
    }
}

pub(super) fn http_version(endpoint: &Section<'_>) -> HttpVersion {
    let version = |text: &str| match text {
        "1.1" => Ok(HttpVersion::Http1),
        "2" => Ok(HttpVersion::Http2),
        _ => Err(format!("{text:?} is neither \"1.1\" nor \"2\"")),
    };
    endpoint
        .optional("http_version", VERSION, version)
        .unwrap_or_default()
}

/// What the history keeps beside the outcome.
pub(super) fn details(endpoint: &Section<'_>) -> Details {
    let words = [Details::All, Details::Failures, Details::None].map(|one| (one.as_str(), one));
    endpoint.choice("details", Details::default().as_str(), &words)
}

pub(super) fn idempotency(endpoint: &Section<'_>) -> idempotency::Config {
    let section = endpoint.section("idempotency");
    let default = idempotency::Config::default();
    let formats = [
        ("string", Format::String),
        ("bare", Format::Bare),
        ("none", Format::None),
    ];
    idempotency::Config {
        format: section.choice("format", "string", &formats),
        header: section
            .optional("header", HEADER, |text| match header_name(text) {
                // The only one of ours that this key may name.
                Err(_) if default.header == text => Ok(default.header.clone()),
                name => name,
            })
            .unwrap_or(default.header.clone()),
        ttl: section.duration("ttl", default.ttl, SECOND..),
    }
}

/// The name of a header that neither HTTP nor the relay sets.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    let shown = units::quoted(text);
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("{shown} is no legal header name"))?;
    if headers::reserved(text) {
        return Err(format!("{shown} is a header that HTTP or the relay sets"));
    }
    Ok(name)
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains(char::is_control) {
        return Err("a path must not be empty and have no control characters".into());
    }
    Ok(text.into())
}

/// What the table of messages takes, and a route as well.
pub(super) fn topic(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.contains(char::is_control) {
        return Err("must be 1 to 255 bytes without control characters".into());
    }
    Ok(text.to_owned())
}

/// The same, where a route takes it.
pub(super) fn routed(text: &str, routes: &Routes) -> Result<String, String> {
    let topic = topic(text)?;
    match routes.of(&topic) {
        Some(_) => Ok(topic),
        None => Err(format!(
            "no route takes {}: its messages would stay pending",
            units::quoted(text)
        )),
    }
}
