//! What the history keeps of a request and its answer, beside the outcome: pure, but for the digest of a large body.
//!
//! A failure is looked into later, by somebody who did not see it: where did it go, what did it say of itself, were these the
//! bytes that are still in the table, what did the other side answer. A success is not, mostly, and pays for a copy of its URL and headers only.
//! Nothing that authorises anybody is kept: values that the relay knows for secret, those of headers whose names say so, and whatever
//! comes back of them.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::redact::{INSTEAD, Redactor};
use crate::message::{Class, Exchange};

/// Bytes that are kept of a header's value at most.
const VALUE: usize = 1024;

/// ... and of all of them together, names too.
const HEADERS: usize = 8 * 1024;

/// A digest of more than that is made on a thread for blocking work.
const LARGE: usize = 64 * 1024;

/// Values of headers with such a name authorise somebody.
const SECRET: [&str; 13] = [
    "auth",
    "cookie",
    "session",
    "jwt",
    "hmac",
    "credential",
    "secret",
    "password",
    "passwd",
    "signature",
    "token",
    "apikey",
    "-key",
];

/// These have such a name and are none.
const OPEN: [&str; 3] = ["idempotency-key", "outbox-key", "surrogate-key"];

/// Values of these are URLs, whose queries are as often secret as the request's own.
const URLS: [&str; 4] = ["location", "content-location", "refresh", "link"];

/// Of which attempts request and answer are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Details {
    /// Of every one.
    All,
    /// Of those that were no success.
    #[default]
    Failures,
    /// Of none.
    None,
}

/// A request as it went out.
pub(super) struct Sent {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// As the history has it.
#[derive(Serialize)]
struct Request {
    method: String,
    url: String,
    headers: Map<String, Value>,
    size: usize,
    sha256: String,
}

// === impl Details ===

impl Details {
    /// Whether those of an attempt of this class are kept.
    pub fn keeps(self, class: Class) -> bool {
        match self {
            Details::All => true,
            Details::Failures => class != Class::Success,
            Details::None => false,
        }
    }

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Details::All => "all",
            Details::Failures => "failures",
            Details::None => "none",
        }
    }
}

// === impl Sent ===

impl Sent {
    /// What is kept of it and of what was answered.
    pub(super) async fn exchange(
        self,
        received: Option<HeaderMap>,
        redactor: &Redactor,
    ) -> Arc<Exchange> {
        let size = self.body.len();
        let body = self.body;
        let sha256 = match size {
            0..=LARGE => digest(&body),
            // A panic, or a runtime that is going down.
            _ => spawn_blocking(move || digest(&body))
                .await
                .unwrap_or_default(),
        };
        let mut url = self.url;
        // What follows the path is often a secret.
        let query = if url.query().is_some() { "?…" } else { "" };
        url.set_query(None);
        let request = Request {
            method: self.method.to_string(),
            url: redactor.hide(format!("{url}{query}")),
            headers: shown(&self.headers, redactor),
            size,
            sha256,
        };
        Arc::new(Exchange {
            request: serde_json::to_string(&request).unwrap_or_default(),
            response_headers: received
                .map(|headers| Value::Object(shown(&headers, redactor)).to_string()),
        })
    }
}

fn digest(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Headers as a JSON object of strings, but for what is secret; what has several values has them in one, as HTTP allows.
fn shown(headers: &HeaderMap, redactor: &Redactor) -> Map<String, Value> {
    let mut all = Map::new();
    let mut left = HEADERS;
    for name in headers.keys() {
        let values = headers.get_all(name).iter();
        let text: Vec<String> = values
            .map(|value| match secret(name, value) {
                true => INSTEAD.to_owned(),
                false => {
                    let text = String::from_utf8_lossy(value.as_bytes());
                    redactor.hide(match URLS.contains(&name.as_str()) {
                        true => without_query(&text),
                        false => text.into_owned(),
                    })
                }
            })
            .collect();
        let mut text = text.join(", ").replace('\0', "\u{FFFD}");
        if text.len() > VALUE {
            text.truncate(text.floor_char_boundary(VALUE));
            text.push('…');
        }
        let Some(rest) = left.checked_sub(name.as_str().len() + text.len()) else {
            all.insert("…".into(), "more headers than are kept".into());
            break;
        };
        left = rest;
        all.insert(name.as_str().to_owned(), text.into());
    }
    all
}

fn secret(name: &HeaderName, value: &HeaderValue) -> bool {
    let name = name.as_str();
    let open = OPEN.contains(&name);
    value.is_sensitive() || !open && SECRET.iter().any(|word| name.contains(word))
}

/// A URL, or what begins with one, up to its query or fragment, and without who is named before its host.
fn without_query(text: &str) -> String {
    let (kept, cut) = match text.find(['?', '#']) {
        Some(at) => (&text[..at], "?…"),
        None => (text, ""),
    };
    match kept.split_once("//") {
        Some((scheme, rest)) => {
            let path = rest.find('/').unwrap_or(rest.len());
            let host = rest[..path].rsplit('@').next().unwrap_or_default();
            format!("{scheme}//{host}{}{cut}", &rest[path..])
        }
        None => format!("{kept}{cut}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let parsed = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        lines.iter().map(parsed).collect()
    }

    fn seen(lines: &[(&'static str, &str)], secrets: &[&str]) -> String {
        let secrets: Vec<HeaderValue> = secrets.iter().map(|s| s.parse().unwrap()).collect();
        Value::Object(shown(&headers(lines), &Redactor::new(&secrets))).to_string()
    }

    #[test]
    fn whatever_authorises_somebody_is_not_kept() {
        let lines = [
            ("authorization", "Bearer abcdefgh"),
            ("cookie", "a=b"),
            ("set-cookie", "a=b"),
            ("x-api-key", "abcdefgh"),
            ("x-auth-token", "abcdefgh"),
            ("webhook-signature", "v1,abcdefgh"),
            ("ocp-apim-subscription-key", "abcdefgh"),
            ("x-auth", "abcdefgh"),
            ("x-jwt", "abcdefgh"),
            ("x-session-id", "abcdefgh"),
        ];
        for line in lines {
            let want = format!("{{\"{}\":\"[redacted]\"}}", line.0);
            assert_eq!(seen(&[line], &[]), want);
        }
        let echoed = seen(&[("x-echo", "got s3cr3t-word")], &["s3cr3t-word"]);
        assert_eq!(echoed, r#"{"x-echo":"got [redacted]"}"#);
        for (url, want) in [
            (
                "https://u:p@h.example/cb?token=abcdefgh",
                "https://h.example/cb?…",
            ),
            ("https://u:p@h.example", "https://h.example"),
            ("/next#abcdefgh", "/next?…"),
            ("/a@b", "/a@b"),
        ] {
            let want = format!("{{\"location\":\"{want}\"}}");
            assert_eq!(seen(&[("location", url)], &[]), want);
        }
        let mut marked = HeaderValue::from_static("abcdefgh");
        marked.set_sensitive(true);
        assert!(secret(&HeaderName::from_static("x-plain"), &marked));
    }

    #[test]
    fn all_else_is_kept_as_it_was_up_to_a_limit() {
        let lines = [
            ("x-a", "1"),
            ("x-a", "2"),
            ("idempotency-key", "\"k\""),
            ("outbox-key", "k"),
        ];
        let want = r#"{"idempotency-key":"\"k\"","outbox-key":"k","x-a":"1, 2"}"#;
        assert_eq!(seen(&lines, &[]), want);
        let long = "ä".repeat(VALUE);
        let value = HeaderValue::from_bytes(long.as_bytes()).unwrap();
        let all: HeaderMap = (0..100)
            .map(|n| {
                (
                    HeaderName::try_from(format!("x-{n}")).unwrap(),
                    value.clone(),
                )
            })
            .collect();
        let kept = shown(&all, &Redactor::new(&[]));
        assert_eq!(kept["…"], "more headers than are kept");
        let text = Value::Object(kept).to_string();
        assert!(text.len() < HEADERS + 200, "{}", text.len());
    }

    #[tokio::test]
    async fn the_bytes_that_were_sent_can_be_told_again() {
        for size in [0, 3, LARGE + 1] {
            let body = Bytes::from(vec![b'a'; size]);
            let sent = Sent {
                method: Method::PUT,
                url: "https://h.example/a?secret=1".parse().unwrap(),
                headers: HeaderMap::new(),
                body: body.clone(),
            };
            let exchange = sent.exchange(None, &Redactor::new(&[])).await;
            let request: Value = serde_json::from_str(&exchange.request).unwrap();
            assert_eq!(request["method"], "PUT");
            assert_eq!(request["url"], "https://h.example/a?…");
            assert_eq!(request["size"], size);
            assert_eq!(request["sha256"], digest(&body));
            assert_eq!(exchange.response_headers, None);
        }
        // FIPS 180-4, the example of one block.
        assert_eq!(
            digest(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
