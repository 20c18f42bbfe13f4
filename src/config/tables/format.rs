//! How requests look: method, format, headers, and the fields in a URL.

use std::path::PathBuf;

use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};

use super::sending::header_name;
use crate::{
    config::{reader::Section, units},
    delivery::{
        auth,
        format::{Config, Shape},
        idempotency, target,
    },
};

type Headers = Vec<(HeaderName, HeaderValue)>;
type Files = Vec<(HeaderName, PathBuf)>;

const KIB: usize = 1024;

const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// An endpoint that is `whole` must have all that its format needs; `[defaults]` may hold a part.
pub(super) fn format(endpoint: &Section<'_>, whole: bool) -> Config {
    let shape = shape(endpoint, whole);
    let method = endpoint.optional("method", r#"a method such as "PUT""#, method);
    let (headers, header_files) = headers(endpoint, &shape);
    Config {
        method: method.unwrap_or(Method::POST),
        shape,
        headers,
        header_files,
        gzip_above: endpoint.size_if_any("gzip_above", 64 * KIB, KIB..),
    }
}

/// The headers that every request has: those of the configuration, and those from files.
pub(super) fn headers(endpoint: &Section<'_>, shape: &Shape) -> (Headers, Files) {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let expected = "the header's value as a text";
    let headers = endpoint.map("headers", expected, same, |name, text| {
        let name = own_name(name, shape)?;
        // Blanks around it are not part of a value; in HTTP/2 they would make the request malformed.
        let text = text.trim_matches([' ', '\t']);
        let value = HeaderValue::from_str(text).ok().filter(|_| text.is_ascii());
        let mut value = value.ok_or("may have visible ASCII characters only")?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    let expected = r#"a path such as "/run/secrets/key""#;
    let files = endpoint.map("header_files", expected, same, |name, text| {
        if text.is_empty() || text.contains(char::is_control) {
            return Err("a path must not be empty and have no control characters".into());
        }
        Ok((own_name(name, shape)?, text.into()))
    });
    for (text, _) in &files {
        if headers.iter().any(|(other, _)| same(other, text)) {
            let message = format!("{text} stands in headers as well");
            endpoint.problem("header_files", message);
        }
    }
    (
        headers.into_iter().map(|(_, header)| header).collect(),
        files.into_iter().map(|(_, file)| file).collect(),
    )
}

/// What is set twice: by `headers`, and by another key.
pub(super) fn check(
    endpoint: &Section<'_>,
    format: &Config,
    auth: &auth::Config,
    idempotency: &idempotency::Config,
) {
    let authorized = *auth != auth::Config::None;
    let twice =
        |name: &HeaderName| *name == idempotency.header || (authorized && *name == AUTHORIZATION);
    if let Some((name, _)) = format.headers.iter().find(|(name, _)| twice(name)) {
        let message = format!("{name} is set by another key of this endpoint");
        endpoint.problem("headers", message);
    }
    if let Some((name, _)) = format.header_files.iter().find(|(name, _)| twice(name)) {
        let message = format!("{name} is set by another key of this endpoint");
        endpoint.problem("header_files", message);
    }
}

fn shape(endpoint: &Section<'_>, whole: bool) -> Shape {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Raw,
        Binary,
        Structured,
    }
    let kinds = [
        ("raw", Kind::Raw),
        ("cloudevents-binary", Kind::Binary),
        ("cloudevents-structured", Kind::Structured),
    ];
    let kind = endpoint.choice("format", "raw", &kinds);
    let found = endpoint.optional("source", r#"a URI such as "/shop""#, source);
    let missing = found.is_none() && kind != Kind::Raw;
    let base = endpoint.base();
    let wrong = endpoint.has("source") || base.is_some_and(|base| base.has("source"));
    if whole && missing && !wrong {
        let message = r#"is missing: a CloudEvent needs one, such as "/shop""#;
        endpoint.problem("source", message.into());
    }
    if whole && endpoint.has("source") && kind == Kind::Raw {
        let message = "means something only with a format of CloudEvents";
        endpoint.problem("source", message.into());
    }
    let source = found.unwrap_or_default();
    match kind {
        Kind::Raw => Shape::Raw,
        Kind::Binary => Shape::Binary { source },
        Kind::Structured => Shape::Structured { source },
    }
}

/// A URI reference, as far as its characters tell.
fn source(text: &str) -> Result<String, String> {
    let right = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    if text.is_empty() || !text.chars().all(right) {
        return Err("must be a URI reference such as \"/shop\" or \"https://example.com/shop\", with all else percent-encoded".into());
    }
    Ok(text.to_owned())
}

fn method(text: &str) -> Result<Method, String> {
    let found = METHODS.iter().find(|method| method.as_str() == text);
    found.cloned().ok_or_else(|| {
        let all: Vec<&str> = METHODS.iter().map(Method::as_str).collect();
        let found = units::quoted(text);
        format!("expected one of {}, found {found}", all.join(", "))
    })
}

fn own_name(text: &str, shape: &Shape) -> Result<HeaderName, String> {
    let name = header_name(text)?;
    let events = match shape {
        Shape::Raw => false,
        Shape::Binary { .. } | Shape::Structured { .. } => name.as_str().starts_with("ce-"),
    };
    if events {
        return Err("is set by the format of CloudEvents".into());
    }
    Ok(name)
}

/// What stands between braces, which only path and query may have.
pub(super) fn fields(text: &str) -> Result<(), String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    if rest[..end].contains(['{', '}']) {
        return Err("a field in braces can stand in the path and the query only".into());
    }
    let known = target::FIELDS.map(|field| format!("{{{field}}}"));
    let mut left = rest[end..].to_owned();
    for field in &known {
        left = left.replace(field, "");
    }
    if left.contains(['{', '}']) {
        let known = known.join(", ");
        return Err(format!(
            "braces stand for a field of the row, one of {known}; for the characters write %7B and %7D"
        ));
    }
    Ok(())
}
