//! A batch in our own words: a JSON array with an object for each message, which says what headers say of a single one.

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use uuid::Uuid;

use super::json::{self, Object};
use crate::message::Delivery;

/// The type of a payload that does not say another one.
const JSON: &str = "application/json";

/// The array; `key` gives each message its idempotency key.
pub(super) fn batch(
    headers: &mut HeaderMap,
    deliveries: &[&Delivery],
    key: impl Fn(&Delivery) -> Option<Uuid>,
) -> Bytes {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let size = deliveries.iter().map(|delivery| room(delivery)).sum();
    let mut json = Vec::with_capacity(size);
    json::array(&mut json, deliveries, |json, delivery| {
        write(json, delivery, key(delivery));
    });
    json.into()
}

/// How many bytes an item takes, about.
fn room(delivery: &Delivery) -> usize {
    320 + delivery.body.as_ref().map_or(0, Bytes::len)
}

fn write(json: &mut Vec<u8>, delivery: &Delivery, key: Option<Uuid>) {
    let mut item = Object::new(json);
    item.text("id", &delivery.id.hyphenated().to_string());
    if let Some(key) = key {
        item.text("idempotency_key", &key.hyphenated().to_string());
    }
    item.text("topic", &delivery.topic);
    if let Some(key) = &delivery.key {
        item.text("key", key);
    }
    if let Some(kind) = &delivery.kind {
        item.text("type", kind);
    }
    item.json("seq", delivery.seq.to_string().as_bytes());
    item.json("attempt", delivery.attempt().to_string().as_bytes());
    item.text("created_at", &delivery.created_at);
    if !delivery.headers.is_empty() {
        item.texts("headers", &delivery.headers);
    }
    if let Some(stored) = delivery.body.as_deref() {
        let content_type = delivery.content_type.as_deref();
        let payload = json::is_json(content_type, stored);
        if let Some(content_type) = content_type.filter(|of| !payload || *of != JSON) {
            item.text("content_type", content_type);
        }
        if payload {
            item.json("payload", stored);
        } else {
            item.base64("body", stored);
        }
    }
    item.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::tests::delivery;

    fn written(deliveries: &[&Delivery]) -> String {
        let mut headers = HeaderMap::new();
        let body = batch(&mut headers, deliveries, |delivery| Some(delivery.id));
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        String::from_utf8(body.into()).unwrap()
    }

    #[test]
    fn an_item_says_what_headers_say_of_a_single_message() {
        let full = Delivery {
            key: Some("Euro €\n\"".into()),
            kind: Some("paid".into()),
            seq: i64::MAX,
            attempts: 2,
            headers: vec![("X-Shop".into(), "a, b".into())],
            ..delivery(Some(br#"{"n": 50755254975729665, "n": 1e400,  "f":1.50}"#))
        };
        let bare = delivery(None);
        let want = [
            r#"[{"id":"00000000-0000-0000-0000-000000000007","#,
            r#""idempotency_key":"00000000-0000-0000-0000-000000000007","topic":"order.created","#,
            r#""key":"Euro €\n\"","type":"paid","seq":9223372036854775807,"attempt":3,"#,
            r#""created_at":"2026-01-02T03:04:05Z","headers":{"X-Shop":"a, b"},"#,
            r#""payload":{"n": 50755254975729665, "n": 1e400,  "f":1.50}},"#,
            r#"{"id":"00000000-0000-0000-0000-000000000007","#,
            r#""idempotency_key":"00000000-0000-0000-0000-000000000007","topic":"order.created","#,
            r#""seq":1,"attempt":1,"created_at":"2026-01-02T03:04:05Z"}]"#,
        ];
        assert_eq!(written(&[&full, &bare]), want.concat());
        let mut headers = HeaderMap::new();
        let body = batch(&mut headers, &[&bare], |_| None);
        assert!(
            !String::from_utf8(body.into())
                .unwrap()
                .contains("idempotency")
        );
    }

    #[test]
    fn json_is_kept_and_all_else_is_base64() {
        let table = [
            (Some(b"null".as_slice()), Some(JSON), r#","payload":null}"#),
            (
                Some(b"[1]"),
                Some("a/b+json"),
                r#","content_type":"a/b+json","payload":[1]}"#,
            ),
            (
                Some(b"{"),
                Some(JSON),
                r#","content_type":"application/json","body":"ew=="}"#,
            ),
            (
                Some(b"1"),
                Some("text/plain"),
                r#","content_type":"text/plain","body":"MQ=="}"#,
            ),
            (Some(b""), None, r#","body":""}"#),
            (None, Some(JSON), "}"),
        ];
        for (body, content_type, want) in table {
            let row = Delivery {
                content_type: content_type.map(String::from),
                ..delivery(body)
            };
            let text = written(&[&row]);
            let (_, end) = text.split_once(r#""2026-01-02T03:04:05Z""#).unwrap();
            assert_eq!(end, format!("{want}]"));
        }
    }
}
