//! Messages that somebody sends instead of inserting them: callers of ours, and webhooks of others.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    body::{Bytes, HttpBody as _, to_bytes},
    extract::{Path, Request, State as Given},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    super::{
        signed::{self, STALE, Scheme, Signed},
        webhooks::Hook,
    },
    Api, Problem, Writes,
};
use crate::{
    delivery::sign,
    store::{Accepted, Error, Requested, Sent},
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A message as it is posted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted<'b> {
    topic: String,
    key: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow, default, deserialize_with = "given")]
    payload: Option<&'b RawValue>,
    body_base64: Option<String>,
    content_type: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    due_at: Option<String>,
    #[serde(rename = "in")]
    due_in: Option<String>,
    expires_at: Option<String>,
}

/// A null that is there is a payload.
fn given<'b, D: Deserializer<'b>>(from: D) -> Result<Option<&'b RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

pub(super) async fn post(Given(api): Given<Api>, request: Request) -> Result<Response, Problem> {
    let writes = writes(&api)?;
    let (caller, key, body) = sender(&api, writes, request).await?;
    let posted: Posted<'_> = object(&body)?;
    let bytes = posted.body_base64.as_ref().map(|text| {
        let bytes = BASE64_STANDARD.decode(text);
        bytes.map_err(|error| Problem::bad(format!("body_base64: {error}")))
    });
    let bytes = bytes.transpose()?;
    if posted.payload.is_some() && bytes.is_some() {
        return Err(Problem::bad("payload, body_base64: at most one of the two"));
    }
    if posted.due_at.is_some() && posted.due_in.is_some() {
        return Err(Problem::bad("due_at, in: at most one of the two"));
    }
    let due_in = posted.due_in.as_deref().map(|text| delay("in", text));
    let due_in = due_in.transpose()?;
    let due_at = time("due_at", posted.due_at.as_deref())?;
    let expires_at = time("expires_at", posted.expires_at.as_deref())?;
    let headers = posted.headers.map(|headers| json!(headers));
    let sent = Sent {
        topic: &posted.topic,
        key: posted.key.as_deref(),
        kind: posted.kind.as_deref(),
        payload: posted.payload.map(RawValue::get),
        body: bytes.as_deref(),
        content_type: posted.content_type.as_deref(),
        headers: headers.as_ref(),
        due_in,
        due_at: due_at.as_deref(),
        expires_at: expires_at.as_deref(),
    };
    accept(writes, &caller, key.as_deref(), &body, sent).await
}

pub(super) async fn webhook(
    Given(api): Given<Api>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let hook = api.hooks.iter().find(|hook| hook.config.name == name);
    let hook = hook.ok_or_else(|| Problem::missing(format!("there is no webhook {name:?}")))?;
    let writes = writes(&api)?;
    let (parts, body) = request.into_parts();
    let config = &hook.config;
    let unknown = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
    let signed =
        Signed::read(config.scheme, &parts.headers, &config.signature_header).map_err(unknown)?;
    if !signed.is_fresh(sign::now()) {
        return Err(unknown(STALE));
    }
    let body = whole(body, writes.max_body).await?;
    if !hook.any_key(|key| signed.is_by(key, &body)) {
        return Err(unknown("the signature is by no secret that is known"));
    }
    let id = delivery_id(hook, &parts.headers, &signed, &body)
        .ok_or_else(|| Problem::bad("it has no delivery id: it could not be told from the next"))?;
    let text = |name: &HeaderName| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), Value::from(value)))
    };
    let headers: serde_json::Map<String, Value> = config.headers.iter().filter_map(text).collect();
    let headers = (!headers.is_empty()).then_some(Value::Object(headers));
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let payload = content_type
        .filter(|kind| is_json(kind))
        .and_then(|_| serde_json::from_slice::<&RawValue>(&body).ok());
    let sent = Sent {
        topic: &config.topic,
        kind: config.kind.as_deref(),
        payload: payload.map(RawValue::get),
        body: payload.is_none().then_some(&*body),
        content_type,
        headers: headers.as_ref(),
        ..Sent::default()
    };
    // A blank is in no name of a caller.
    let caller = format!("webhook {name}");
    accept(writes, &caller, Some(&id), &body, sent).await
}

async fn accept(
    writes: &Writes,
    caller: &str,
    key: Option<&str>,
    request: &[u8],
    sent: Sent<'_>,
) -> Result<Response, Problem> {
    let digest: [u8; 32] = Sha256::digest(request).into();
    let requested = Requested {
        caller,
        key,
        digest: &digest,
    };
    let sent = writes.store.accept(requested, sent).await;
    let other = "Idempotency-Key: this key was used with another request";
    accepted(sent, "/v1/messages/", other)
}

/// What is answered: where it is, or that its key was used for an `other` one.
pub(super) fn accepted(
    sent: Result<Accepted, Error>,
    place: &str,
    other: &str,
) -> Result<Response, Problem> {
    match sent.map_err(|error| match error.refusal() {
        Some(refusal) => Problem::bad(refusal),
        None => error.into(),
    })? {
        Accepted::Message(id) => {
            let place = [(header::LOCATION, format!("{place}{id}"))];
            Ok((StatusCode::ACCEPTED, place, Json(json!({ "id": id }))).into_response())
        }
        Accepted::OtherRequest => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, other)),
    }
}

pub(super) fn writes(api: &Api) -> Result<&Writes, Problem> {
    let Some(writes) = &api.writes else {
        let detail = "no caller that sends messages is configured";
        return Err(Problem::missing(detail));
    };
    if !writes.vitals.started() {
        // A copy of the outbox takes messages as the original does, and nobody delivers them.
        let detail = "this relay is not registered in its database yet";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    Ok(writes)
}

/// The whole body, of so many bytes at most.
async fn whole(body: axum::body::Body, most: usize) -> Result<Bytes, Problem> {
    let large = || {
        let detail = format!("the body: {most} bytes at most (http.max_body)");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(large());
    }
    to_bytes(body, most).await.map_err(|error| {
        let source = std::error::Error::source(&error);
        match source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>()) {
            true => large(),
            false => Problem::bad(format!("the body: {error}")),
        }
    })
}

/// A JSON object: an array would be taken for the members in their order.
pub(super) fn object<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    let object = body.trim_ascii();
    if !object.starts_with(b"{") {
        return Err(Problem::bad("the body: a JSON object is expected"));
    }
    serde_json::from_slice(object).map_err(|error| Problem::bad(format!("the body: {error}")))
}

/// Who sends it, by which key, and the whole body.
pub(super) async fn sender(
    api: &Api,
    writes: &Writes,
    request: Request,
) -> Result<(String, Option<String>, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let signed = parts.headers.contains_key(signed::SIGNATURE)
        && !parts.headers.contains_key(header::AUTHORIZATION);
    // A token is known before anything of the body is read; a signature is not.
    if signed {
        let body = whole(body, writes.max_body).await?;
        let (caller, id) = api.callers.signer(&parts.headers, &body, sign::now())?;
        return Ok((caller, Some(id), body));
    }
    let caller = api.callers.writer(&parts)?;
    let key = key(&parts.headers)?;
    Ok((caller, key, whole(body, writes.max_body).await?))
}

/// A key as the draft has it, a string in quotes, or without them as many send it.
fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut all = headers.get_all(KEY).iter();
    let Some(value) = all.next() else {
        return Ok(None);
    };
    let wrong = || Problem::bad("Idempotency-Key: one string of 1 to 255 visible ASCII characters");
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquoted(rest).ok_or_else(wrong)?,
        None => text.to_owned(),
    };
    let good =
        (1..=255).contains(&key.len()) && key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match all.next() {
        None if good => Ok(Some(key)),
        _ => Err(wrong()),
    }
}

/// What follows the first quote of a string of structured fields (RFC 9651), up to the last.
fn unquoted(rest: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(chars.next().filter(|c| ['"', '\\'].contains(c))?),
            '"' => return chars.next().is_none().then_some(text),
            c => text.push(c),
        }
    }
    None
}

/// `90s`, `15m`, `2h` or `7d`.
pub(super) fn delay(member: &str, text: &str) -> Result<Duration, Problem> {
    let unit = match text.bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 60 * 60,
        Some(b'd') => 24 * 60 * 60,
        _ => 0,
    };
    let digits = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    let number = Some(digits)
        .filter(|digits| {
            (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
        .and_then(|digits| digits.parse::<u64>().ok());
    match (number, unit) {
        (Some(number), 1..) => Ok(Duration::from_secs(number * unit)),
        _ => Err(Problem::bad(format!(
            "{member}: a duration such as \"90s\", \"15m\", \"2h\" or \"7d\" is expected"
        ))),
    }
}

/// As the database reads it, whatever its settings are.
pub(super) fn time(member: &str, text: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let time = text.parse::<Timestamp>().map_err(|_| {
        Problem::bad(format!(
            "{member}: a time such as \"2026-11-30T12:00:00Z\" is expected"
        ))
    })?;
    Ok(Some(time.to_string()))
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

fn delivery_id(hook: &Hook, headers: &HeaderMap, signed: &Signed, body: &[u8]) -> Option<String> {
    let header = |name: &HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    match (&hook.config.id_header, hook.config.scheme) {
        (Some(name), _) => header(name),
        (None, Scheme::StandardWebhooks) => signed.id.clone(),
        (None, Scheme::GitHub) => header(&HeaderName::from_static("x-github-delivery")),
        (None, Scheme::Stripe) => signed::id_in(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_string_with_quotes_or_without() {
        let of = |values: &[&str]| {
            let one = |value: &&str| (KEY, value.parse().unwrap());
            key(&values.iter().map(one).collect()).map_err(drop)
        };
        assert_eq!(of(&[]), Ok(None));
        for (given, want) in [
            ("\"a b\"", "a b"),
            (r#""a\"\\b""#, r#"a"\b"#),
            ("0b54cbe3-8ab9", "0b54cbe3-8ab9"),
            (" x ", "x"),
        ] {
            assert_eq!(of(&[given]), Ok(Some(want.to_owned())), "{given}");
        }
        let long = "x".repeat(256);
        for wrong in ["", "\"\"", "\"a", "\"a\\n\"", "\"a\"b", "a\tb", &long] {
            assert_eq!(of(&[wrong]), Err(()), "{wrong}");
        }
        assert_eq!(of(&["a", "a"]), Err(()));
    }

    #[test]
    fn a_delay_has_one_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7200),
            ("7d", 604_800),
        ] {
            assert_eq!(delay("in", text).unwrap().as_secs(), seconds);
        }
        for wrong in [
            "",
            "s",
            "5",
            "-5s",
            "+5s",
            "1.5h",
            "1h30m",
            "9999999999s",
            "5 s",
            "5é",
        ] {
            assert!(delay("in", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_is_known_by_its_type() {
        for (kind, is) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/cloudevents+json", true),
            ("text/plain", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            assert_eq!(is_json(kind), is, "{kind}");
        }
    }
}
