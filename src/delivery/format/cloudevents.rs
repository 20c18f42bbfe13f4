//! CloudEvents 1.0 over HTTP, in binary, structured and batched mode: pure.
//!
//! | attribute | of a row |
//! |---|---|
//! | `id`, `time` | id, `created_at` |
//! | `type` | type, or the topic where it has none: an event must have one |
//! | `subject`, `partitionkey` | key |
//! | `sequence` | seq, with leading zeros: the extension compares it as text |
//! | `traceparent`, `tracestate` | the headers of that name: the context of the event, not of the attempt |
//!
//! In binary mode a row may add attributes of its own as headers `ce-…`. In structured mode it may not: SDKs take a request
//! with such a header for one in binary mode. In a batch no header is a row's; its key stands in `idempotencykey`.
//!
//! JSON is put into the structured form byte for byte, since to parse it would change numbers and drop members that come
//! twice. What is not JSON goes in as base64.

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use super::json::{self, Object};
use crate::{delivery::headers::encoded, message::Delivery, trace::Context};

const SPECVERSION: HeaderName = HeaderName::from_static("ce-specversion");
const ID: HeaderName = HeaderName::from_static("ce-id");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
const TYPE: HeaderName = HeaderName::from_static("ce-type");
const SUBJECT: HeaderName = HeaderName::from_static("ce-subject");
const TIME: HeaderName = HeaderName::from_static("ce-time");
const PARTITIONKEY: HeaderName = HeaderName::from_static("ce-partitionkey");
const SEQUENCE: HeaderName = HeaderName::from_static("ce-sequence");
const TRACEPARENT: HeaderName = HeaderName::from_static("ce-traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("ce-tracestate");
/// In binary mode it is the `Content-Type`, and never a header of its own.
const DATACONTENTTYPE: HeaderName = HeaderName::from_static("ce-datacontenttype");

/// The headers that a row can't set.
pub(super) const NAMES: [HeaderName; 11] = [
    SPECVERSION,
    ID,
    SOURCE,
    TYPE,
    SUBJECT,
    TIME,
    PARTITIONKEY,
    SEQUENCE,
    TRACEPARENT,
    TRACESTATE,
    DATACONTENTTYPE,
];

const PREFIX: &str = "ce-";

/// Our extension, in batches only: there no header can hold the key.
const IDEMPOTENCYKEY: &str = "idempotencykey";

/// Adds the attributes as headers.
pub(super) fn add(headers: &mut HeaderMap, delivery: &Delivery, source: &str) {
    for (name, value) in attributes(delivery, source) {
        headers.insert(name, encoded(&value));
    }
}

/// The event as a JSON object.
pub(super) fn wrap(
    headers: &mut HeaderMap,
    delivery: &Delivery,
    source: &str,
) -> Result<Bytes, String> {
    let mut names = delivery.headers.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| name.to_ascii_lowercase().starts_with(PREFIX)) {
        return Err(format!(
            "header {name:?} would make a structured CloudEvent look like a binary one"
        ));
    }
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/cloudevents+json; charset=UTF-8"),
    );
    let mut json = Vec::with_capacity(room(delivery));
    write(&mut json, delivery, source, None);
    Ok(json.into())
}

/// Several events as a JSON array of the same objects; `key` gives each its idempotency key, as an extension.
///
/// A row's own headers are no headers of this request, so none of them can change its mode.
pub(super) fn batch(
    headers: &mut HeaderMap,
    deliveries: &[&Delivery],
    source: &str,
    key: impl Fn(&Delivery) -> Option<Uuid>,
) -> Bytes {
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/cloudevents-batch+json; charset=UTF-8"),
    );
    let size = deliveries.iter().map(|delivery| room(delivery)).sum();
    let mut json = Vec::with_capacity(size);
    json::array(&mut json, deliveries, |json, delivery| {
        write(json, delivery, source, key(delivery));
    });
    json.into()
}

/// How many bytes an event takes, about.
fn room(delivery: &Delivery) -> usize {
    512 + delivery.body.as_ref().map_or(0, Bytes::len)
}

fn write(json: &mut Vec<u8>, delivery: &Delivery, source: &str, key: Option<Uuid>) {
    let mut object = Object::new(json);
    for (name, value) in attributes(delivery, source) {
        object.text(&name.as_str()[PREFIX.len()..], &value);
    }
    if let Some(key) = key {
        object.text(IDEMPOTENCYKEY, &key.hyphenated().to_string());
    }
    if let Some(stored) = delivery.body.as_deref() {
        if let Some(content_type) = &delivery.content_type {
            object.text("datacontenttype", content_type);
        }
        if json::is_json(delivery.content_type.as_deref(), stored) {
            object.json("data", stored);
        } else {
            object.base64("data_base64", stored);
        }
    }
    object.end();
}

fn attributes(delivery: &Delivery, source: &str) -> Vec<(HeaderName, String)> {
    let filled = |text: &&String| !text.is_empty();
    let kind = delivery.kind.as_ref().filter(filled);
    let mut all = vec![
        (SPECVERSION, "1.0".to_owned()),
        (ID, delivery.id.hyphenated().to_string()),
        (SOURCE, source.to_owned()),
        (TYPE, kind.unwrap_or(&delivery.topic).clone()),
        (TIME, delivery.created_at.clone()),
        (SEQUENCE, format!("{:019}", delivery.seq)),
    ];
    if let Some(key) = delivery.key.as_ref().filter(filled) {
        all.push((SUBJECT, key.clone()));
        all.push((PARTITIONKEY, key.clone()));
    }
    let header = |wanted: &str| {
        let mut own = delivery.headers.iter();
        let found = own.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    if let Some(parent) = header("traceparent").filter(|parent| Context::parse(parent).is_some()) {
        all.push((TRACEPARENT, parent));
        let state = header("tracestate").filter(|state| !state.is_empty());
        all.extend(state.map(|state| (TRACESTATE, state)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::tests::delivery;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn full() -> Delivery {
        Delivery {
            key: Some("Euro € \u{1F600}".into()),
            kind: Some("com.example.created".into()),
            seq: 42,
            headers: vec![
                ("Traceparent".into(), PARENT.into()),
                ("tracestate".into(), "a=1".into()),
            ],
            ..delivery(Some(br#"{"n": 50755254975729665, "n": 1e400}"#))
        }
    }

    fn binary(delivery: &Delivery) -> Vec<String> {
        let mut headers = HeaderMap::new();
        add(&mut headers, delivery, "/shop?a=%20");
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(line).collect()
    }

    fn structured(delivery: &Delivery) -> String {
        let mut headers = HeaderMap::new();
        let body = wrap(&mut headers, delivery, "/shop").unwrap();
        let want = "application/cloudevents+json; charset=UTF-8";
        assert_eq!(headers[CONTENT_TYPE], want);
        String::from_utf8(body.into()).unwrap()
    }

    #[test]
    fn attributes_are_headers_in_binary_mode() {
        let want = [
            "ce-specversion: 1.0",
            "ce-id: 00000000-0000-0000-0000-000000000007",
            "ce-source: /shop?a=%2520",
            "ce-type: com.example.created",
            "ce-time: 2026-01-02T03:04:05Z",
            "ce-sequence: 0000000000000000042",
            "ce-subject: Euro%20%E2%82%AC%20%F0%9F%98%80",
            "ce-partitionkey: Euro%20%E2%82%AC%20%F0%9F%98%80",
            &format!("ce-traceparent: {PARENT}"),
            "ce-tracestate: a=1",
        ];
        assert_eq!(binary(&full()), want);
        let bare = binary(&delivery(None));
        assert_eq!(bare.len(), 6);
        assert!(bare.contains(&"ce-type: order.created".to_owned()));
    }

    #[test]
    fn the_bytes_are_kept_in_structured_mode() {
        let want = [
            r#"{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000007","source":"/shop","#,
            r#""type":"com.example.created","time":"2026-01-02T03:04:05Z","#,
            r#""sequence":"0000000000000000042","subject":"Euro € 😀","partitionkey":"Euro € 😀","#,
            &format!(r#""traceparent":"{PARENT}","tracestate":"a=1","#),
            r#""datacontenttype":"application/json","data":{"n": 50755254975729665, "n": 1e400}}"#,
        ];
        assert_eq!(structured(&full()), want.concat());
        let end = |body: Option<&'static [u8]>, content_type: Option<&str>| {
            let json = structured(&Delivery {
                content_type: content_type.map(String::from),
                ..delivery(body)
            });
            json.split_once(r#""sequence":"0000000000000000001""#)
                .unwrap()
                .1
                .to_owned()
        };
        let table = [
            (None, Some("application/json"), "}"),
            (
                Some(b"null".as_slice()),
                Some("a/b+JSON; c=d"),
                r#","datacontenttype":"a/b+JSON; c=d","data":null}"#,
            ),
            (
                Some(b"{"),
                Some("a/json"),
                r#","datacontenttype":"a/json","data_base64":"ew=="}"#,
            ),
            (
                Some(b"[1] x"),
                Some("a/json"),
                r#","datacontenttype":"a/json","data_base64":"WzFdIHg="}"#,
            ),
            (
                Some(b"\"\xff\""),
                Some("a/json"),
                r#","datacontenttype":"a/json","data_base64":"Iv8i"}"#,
            ),
            (
                Some(b"1"),
                Some("text/plain"),
                r#","datacontenttype":"text/plain","data_base64":"MQ=="}"#,
            ),
            (Some(b"1"), None, r#","data_base64":"MQ=="}"#),
            (
                Some(b""),
                Some("a/json"),
                r#","datacontenttype":"a/json","data_base64":""}"#,
            ),
        ];
        for (body, content_type, want) in table {
            assert_eq!(end(body, content_type), want);
        }
    }

    #[test]
    fn a_batch_is_an_array_of_the_same_events_with_their_keys() {
        let mut row = full();
        let single = structured(&row);
        row.headers.push(("CE-Extra".into(), "1".into()));
        let bare = delivery(None);
        let mut headers = HeaderMap::new();
        let of = |key: fn(&Delivery) -> Option<Uuid>, headers: &mut HeaderMap| {
            let body = batch(headers, &[&row, &bare], "/shop", key);
            String::from_utf8(body.into()).unwrap()
        };
        let want = format!("[{single},{}]", structured(&bare));
        assert_eq!(of(|_| None, &mut headers), want);
        let kind = "application/cloudevents-batch+json; charset=UTF-8";
        assert_eq!(headers[CONTENT_TYPE], kind);

        let key = Uuid::from_u128(8);
        let keyed = of(|_| Some(Uuid::from_u128(8)), &mut headers);
        let member = format!(r#","idempotencykey":"{key}""#);
        assert_eq!(keyed.matches(&member).count(), 2);
        assert_eq!(keyed.replace(&member, ""), want);
    }

    #[test]
    fn a_header_that_would_change_the_mode_is_refused() {
        let mut row = full();
        row.headers.push(("CE-Extra".into(), "1".into()));
        let error = wrap(&mut HeaderMap::new(), &row, "/").unwrap_err();
        assert!(
            error.starts_with("header \"CE-Extra\" would make"),
            "{error}"
        );
    }

    #[test]
    fn only_a_valid_context_is_passed_on() {
        let zero = |from: &str| PARENT.replace(from, &"0".repeat(from.len()));
        for (text, want) in [
            (PARENT, true),
            ("", false),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                false,
            ),
            (&zero("0af7651916cd43dd8448eb211c80319c"), false),
            (&zero("b7ad6b7169203331"), false),
            (&PARENT.replace("00-", "ff-"), false),
            (&PARENT.to_uppercase(), false),
            (&format!("{PARENT}-x"), false),
        ] {
            assert_eq!(Context::parse(text).is_some(), want, "{text}");
        }
        let mut row = full();
        row.headers[0].1 = "nonsense".into();
        assert!(!structured(&row).contains("trace"));
    }
}
