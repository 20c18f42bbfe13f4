//! The headers of a request: pure.
//!
//! Ours say which message this is and how often it was tried; the row's own follow. A row can add, never override: a name
//! of ours, or one by which HTTP frames a message, would let a payload choose its idempotency key or smuggle a second
//! request. The table's CHECKs refuse such rows at INSERT; this is the second wall, for a row that came around them. It
//! refuses nothing that they let through, but what the endpoint itself sets.
//!
//! Values of ours can hold any text, header values can't: they are percent-encoded as CloudEvents does.

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::idempotency;
use crate::{
    message::Delivery,
    trace::{self, Propagation},
};

const MESSAGE_ID: HeaderName = HeaderName::from_static("outbox-message-id");
const TOPIC: HeaderName = HeaderName::from_static("outbox-topic");
const KEY: HeaderName = HeaderName::from_static("outbox-key");
const TYPE: HeaderName = HeaderName::from_static("outbox-type");
const ATTEMPT: HeaderName = HeaderName::from_static("outbox-attempt");
const BATCH: HeaderName = HeaderName::from_static("outbox-batch");
const CREATED_AT: HeaderName = HeaderName::from_static("outbox-created-at");
const TRACEPARENT: HeaderName = HeaderName::from_static(trace::TRACEPARENT);
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Names and values of a row's own headers together; receivers rarely take more. The table's limit is for the same
/// headers written as JSON, which is longer, so this one is never the first to refuse.
const LIMIT: usize = 16 * 1024;

/// Names that HTTP or the relay itself sets.
const RESERVED: [&str; 10] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// The same, with anything behind.
const RESERVED_PREFIXES: [&str; 4] = ["proxy-", "outbox-", "saga-", "webhook-"];

/// Whether a row must not set this header, in any spelling.
pub fn reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str())
        || name == idempotency::NAME.as_str()
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// The headers that say which message this is and how often it was tried.
pub(super) fn about(delivery: &Delivery) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(MESSAGE_ID, ascii(delivery.id.hyphenated().to_string()));
    headers.insert(TOPIC, encoded(&delivery.topic));
    if let Some(key) = &delivery.key {
        headers.insert(KEY, encoded(key));
    }
    if let Some(kind) = &delivery.kind {
        headers.insert(TYPE, encoded(kind));
    }
    headers.insert(ATTEMPT, delivery.attempt().into());
    headers.insert(CREATED_AT, encoded(&delivery.created_at));
    headers
}

/// The headers that say of which topic the messages of a batch are, and how many. All else is said in its items.
pub(super) fn about_batch(topic: &str, messages: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(TOPIC, encoded(topic));
    headers.insert(BATCH, messages.into());
    headers
}

/// The headers that say what the body is; the error does not show a value.
pub(super) fn add_content(headers: &mut HeaderMap, delivery: &Delivery) -> Result<(), String> {
    if let Some(content_type) = &delivery.content_type
        && delivery.body.is_some()
    {
        headers.insert(CONTENT_TYPE, value("content_type", content_type)?);
    }
    if delivery.body.as_ref().is_none_or(bytes::Bytes::is_empty) {
        // Over HTTP/1 an empty body is sent without any length, which some servers take for 411.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    Ok(())
}

/// Adds the row's own headers but for those that the endpoint sets, `taken`. The error says which one can't be sent, and
/// why, but not its value.
pub(super) fn add_own(
    headers: &mut HeaderMap,
    own: &[(String, String)],
    taken: &[HeaderName],
) -> Result<(), String> {
    let size: usize = own.iter().map(|(name, text)| name.len() + text.len()).sum();
    if size > LIMIT {
        return Err(format!(
            "headers: {size} bytes together, {LIMIT} at most can be sent"
        ));
    }
    for (name, text) in own {
        if reserved(name) {
            return Err(format!(
                "header {name:?} is one that HTTP or the relay itself sets"
            ));
        }
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("header {name:?} has no legal header name"))?;
        if taken.contains(&parsed) {
            // To choose would be to act in somebody else's name.
            return Err(format!("header {name:?} is one that the endpoint sets"));
        }
        // `a` and `A` are two members of a JSON object and one header with two values.
        headers.append(parsed, value(&format!("header {name:?}"), text)?);
    }
    Ok(())
}

/// Puts the attempt's trace in the place of the row's, unless the endpoint sets the header itself.
pub(super) fn propagate(headers: &mut HeaderMap, trace: Propagation, taken: &[HeaderName]) {
    if taken.contains(&TRACEPARENT) {
        return;
    }
    let (context, with_state) = match trace {
        Propagation::Untouched => return,
        Propagation::Dropped => (None, false),
        Propagation::Replaced {
            context,
            with_state,
        } => (Some(context), with_state),
    };
    headers.remove(TRACEPARENT);
    if let Some(context) = context {
        headers.insert(TRACEPARENT, ascii(context.to_string()));
    }
    if !with_state && !taken.contains(&TRACESTATE) {
        headers.remove(TRACESTATE);
    }
}

fn value(what: &str, text: &str) -> Result<HeaderValue, String> {
    // Blanks around a value are not part of it; in HTTP/2 they would make the request malformed.
    let text = text.trim_matches([' ', '\t']);
    // HeaderValue takes any UTF-8, which receivers read as Latin-1 or refuse.
    match HeaderValue::from_str(text) {
        Ok(value) if text.is_ascii() => Ok(value),
        Ok(_) | Err(_) => Err(format!(
            "{what}: its value has more than visible ASCII characters"
        )),
    }
}

/// Percent-encodes what CloudEvents does: space, `"`, `%` and everything outside U+0021–U+007E, as UTF-8, in upper case.
pub(super) fn encoded(text: &str) -> HeaderValue {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => out.push_str(&format!("%{byte:02X}")),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    ascii(out)
}

pub(super) fn ascii(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("visible ASCII only, by construction")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;
    use uuid::uuid;

    use super::*;
    use crate::delivery::tests::decoded;

    fn delivery() -> Delivery {
        Delivery {
            lease: 1,
            lane_endpoint: String::new(),
            id: uuid!("0190B3C4-0000-7000-8000-00000000ABCD"),
            topic: "order.created".into(),
            key: None,
            kind: None,
            body: Some(Bytes::from_static(b"{}")),
            content_type: Some("application/json".into()),
            headers: Vec::new(),
            seq: 1,
            attempts: 0,
            lost: 0,
            throttled: 0,
            generation: 0,
            sent_to: None,
            step: None,
            created_at: "2026-01-02T03:04:05.678901Z".into(),
            age: Duration::ZERO,
            expires_in: None,
        }
    }

    fn with_headers(own: &[(&str, &str)]) -> Delivery {
        Delivery {
            headers: own
                .iter()
                .map(|&(name, text)| (name.into(), text.into()))
                .collect(),
            ..delivery()
        }
    }

    fn build(delivery: &Delivery) -> Result<HeaderMap, String> {
        let mut headers = about(delivery);
        add_content(&mut headers, delivery)?;
        add_own(
            &mut headers,
            &delivery.headers,
            &[HeaderName::from_static("x-ours")],
        )?;
        Ok(headers)
    }

    fn listed(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_plain_row_has_our_headers_only() {
        assert_eq!(
            listed(&build(&delivery()).unwrap()),
            [
                "content-type: application/json",
                "outbox-attempt: 1",
                "outbox-created-at: 2026-01-02T03:04:05.678901Z",
                "outbox-message-id: 0190b3c4-0000-7000-8000-00000000abcd",
                "outbox-topic: order.created",
            ]
        );
    }

    #[test]
    fn key_type_and_the_number_of_the_attempt_are_told() {
        let headers = build(&Delivery {
            key: Some("käse 1".into()),
            kind: Some("Order\nCreated".into()),
            attempts: 2,
            lost: 1,
            throttled: 0,
            ..delivery()
        })
        .unwrap();
        assert_eq!(headers[KEY], "k%C3%A4se%201");
        assert_eq!(headers[TYPE], "Order%0ACreated");
        assert_eq!(headers[ATTEMPT], "4");
    }

    #[test]
    fn text_is_percent_encoded_as_cloudevents_does() {
        for (text, want) in [
            ("", ""),
            ("plain-~!'()*", "plain-~!'()*"),
            ("Euro € \u{1F600}", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
            ("100% \"x\"", "100%25%20%22x%22"),
            ("a\r\nHost: b", "a%0D%0AHost:%20b"),
            ("\0\u{7f}", "%00%7F"),
        ] {
            assert_eq!(encoded(text), want, "{text:?}");
        }
    }

    #[test]
    fn without_a_body_there_is_a_length_and_no_type() {
        let table = [
            (None, Some("text/plain"), None, Some("0")),
            (Some(""), Some("text/plain"), Some("text/plain"), Some("0")),
            (Some("x"), Some("text/plain"), Some("text/plain"), None),
            (Some("x"), None, None, None),
        ];
        for (body, content_type, want_type, want_length) in table {
            let headers = build(&Delivery {
                body: body.map(Bytes::from),
                content_type: content_type.map(String::from),
                ..delivery()
            })
            .unwrap();
            let text = |name| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(text(CONTENT_TYPE), want_type, "{body:?}");
            assert_eq!(text(CONTENT_LENGTH), want_length, "{body:?}");
        }
    }

    #[test]
    fn the_rows_own_headers_are_added() {
        let headers = build(&with_headers(&[
            ("X-Tenant", "acme"),
            ("x-tenant", "\tpadded "),
            ("Authorization", "Bearer x"),
            ("X-Empty", ""),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
        ]))
        .unwrap();
        let tenants: Vec<_> = headers.get_all("x-tenant").iter().collect();
        assert_eq!(tenants, ["acme", "padded"]);
        assert_eq!(headers["authorization"], "Bearer x");
        assert_eq!(headers["x-empty"], "");
        assert_eq!(headers.get_all(TOPIC).iter().count(), 1);
        assert!(headers.contains_key("traceparent"));
    }

    #[test]
    fn what_a_row_must_not_set_is_refused_by_name() {
        let table = [
            ("Host", "evil", "\"Host\" is one that HTTP or the relay"),
            ("idempotency-KEY", "1", "\"idempotency-KEY\" is one that"),
            ("X-Ours", "1", "\"X-Ours\" is one that the endpoint sets"),
            ("Webhook-Id", "1", "\"Webhook-Id\" is one that"),
            ("", "1", "\"\" has no legal header name"),
            ("a b", "1", "\"a b\" has no legal header name"),
            ("a\r\nb", "1", "\"a\\r\\nb\" has no legal header name"),
            (":path", "/", "\":path\" has no legal header name"),
            ("näme", "1", "\"näme\" has no legal header name"),
            ("x-a", "1\r\nHost: evil", "\"x-a\": its value has more than"),
            ("x-a", "1\nb", "\"x-a\": its value has more than"),
            ("x-a", "\0", "\"x-a\": its value has more than"),
            ("x-a", "é", "\"x-a\": its value has more than"),
            ("x-a", "\u{7f}", "\"x-a\": its value has more than"),
        ];
        for (name, text, want) in table {
            let error = build(&with_headers(&[("x-fine", ""), (name, text)])).unwrap_err();
            assert!(error.contains(want), "{name:?}: {error}");
        }
        let error = build(&Delivery {
            content_type: Some("text/plain\r\nx: y".into()),
            ..delivery()
        })
        .unwrap_err();
        assert!(error.contains("content_type"), "{error}");
    }

    #[test]
    fn headers_can_only_be_so_long() {
        let fits = "x".repeat(LIMIT - 3);
        assert!(build(&with_headers(&[("x-a", &fits)])).is_ok());
        let error = build(&with_headers(&[("x-a", &fits), ("b", "")])).unwrap_err();
        assert_eq!(
            error,
            "headers: 16385 bytes together, 16384 at most can be sent"
        );
    }

    #[test]
    fn reserved_names_are_known_in_any_spelling() {
        for name in [
            "Host",
            "content-length",
            "Content-Type",
            "TRANSFER-ENCODING",
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "proxy-connection",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Idempotency-Key",
            "Outbox-Topic",
            "outbox-anything",
            "webhook-signature",
        ] {
            assert!(reserved(name), "{name}");
        }
        for name in [
            "",
            "proxy",
            "x-host",
            "hosts",
            "tea",
            "outbox",
            "webhook",
            "authorization",
            "accept",
            "content-encoding",
            "user-agent",
            "cookie",
        ] {
            assert!(!reserved(name), "{name}");
        }
    }

    /// What a row may come with: names of ours, of HTTP's and of nobody's, in any spelling, and any values.
    fn own() -> impl Strategy<Value = Vec<(String, String)>> {
        let known = prop::sample::select(vec![
            "Host",
            "content-LENGTH",
            "TE",
            "Idempotency-Key",
            "outbox-topic",
            "Outbox-Key",
            "webhook-id",
            "X-Ours",
            "Proxy-Authorization",
            "x-tenant",
            "X-TENANT",
            "traceparent",
            ":path",
        ]);
        let name = prop_oneof![
            known.prop_map(String::from),
            "[a-zA-Z-]{1,12}",
            any::<String>()
        ];
        let value = prop_oneof!["[ -~\t]{0,20}", "[a-z\r\n\0:é ]{0,8}", any::<String>()];
        prop::collection::vec((name, value), 0..6)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_visible_and_can_be_read_back(text in any::<String>()) {
            let value = encoded(&text);
            let shown = value.to_str().unwrap();
            prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'), "{}", shown);
            prop_assert_eq!(decoded(shown), text);
        }

        #[test]
        fn whatever_a_row_sets_ours_stay_and_all_can_be_sent(own in own(), topic in any::<String>(), key in any::<Option<String>>()) {
            let bare = Delivery { topic, key, ..delivery() };
            let ours = build(&bare).unwrap();
            let row = Delivery { headers: own.clone(), ..bare };
            let Ok(headers) = build(&row) else {
                prop_assert!(!own.is_empty());
                return Ok(());
            };
            for (name, value) in &headers {
                let legal = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
                prop_assert!(value.as_bytes().iter().all(legal), "{}: {:?}", name, value);
                let mine = own.iter().any(|(own, _)| own.eq_ignore_ascii_case(name.as_str()));
                prop_assert!(ours.contains_key(name) != mine, "{}", name);
                prop_assert!(!mine || !reserved(name.as_str()), "{}", name);
            }
            for (name, value) in &ours {
                let all: Vec<_> = headers.get_all(name).iter().collect();
                prop_assert_eq!(all, [value], "{}", name);
            }
            // None is lost, and those of one name are in their order.
            for (name, _) in &own {
                let same = own.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
                let wanted: Vec<&str> = same.map(|(_, value)| value.trim_matches([' ', '\t'])).collect();
                let all: Vec<_> = headers.get_all(name).iter().collect();
                prop_assert_eq!(all, wanted, "{}", name);
            }
        }
    }
}
