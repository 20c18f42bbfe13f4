//! Bodies with several messages, and structured CloudEvents: always JSON, and what was stored is in it unchanged.
//!
//! Parts: `c` for CloudEvents, then rows of topic, key, type, content type, body, headers; an empty name ends the headers.
#![no_main]

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use outbox_relay::{
    delivery::{Endpoint, batch, format::Shape, fuzz::Requests},
    message::Delivery,
};
use outbox_relay_fuzz::{Parts, assert_legal, now};
use serde_json::{Value, value::RawValue};
use std::collections::BTreeMap;

fn endpoint(structured: bool) -> Endpoint {
    let mut endpoint = Endpoint::new("a", "http://h.example/hook".parse().unwrap());
    endpoint.batch = Some(batch::Config::default());
    if structured {
        endpoint.format.shape = Shape::Structured {
            source: "/shop \"€\"".into(),
        };
    }
    endpoint
}

thread_local! {
    static REQUESTS: [Requests; 2] =
        [false, true].map(|structured| Requests::new(&endpoint(structured)).unwrap());
}

type Item = BTreeMap<String, Box<RawValue>>;

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)
        .map(|raw| serde_json::from_str(raw.get()).unwrap())
}

/// The stored bytes are there, as they are or in base64.
fn check(item: &Item, row: &Delivery, [json, bytes]: [&str; 2], body: &[u8]) {
    let id = row.id.hyphenated().to_string();
    assert_eq!(text(item, "id"), Some(id));
    match (&row.body, item.get(json), item.get(bytes)) {
        (None, None, None) => {}
        (Some(stored), Some(raw), None) => {
            assert_eq!(raw.get().as_bytes(), stored.trim_ascii());
            assert!(body.windows(stored.len()).any(|part| part == stored));
        }
        (Some(stored), None, Some(raw)) => {
            let encoded: String = serde_json::from_str(raw.get()).unwrap();
            assert_eq!(BASE64_STANDARD.decode(encoded).unwrap()[..], stored[..]);
        }
        other => panic!("{other:?}"),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let structured = parts.bytes() == b"c";
    let rows: Vec<Delivery> = (1..=3).map(|id| parts.row(id)).collect();
    let all: Vec<&Delivery> = rows.iter().collect();
    let of = |rows: &[&Delivery], batch: bool| -> Result<Bytes, String> {
        REQUESTS.with(|requests| {
            let made = now(requests[usize::from(structured)].of(rows, batch));
            made.map(|(request, body)| {
                assert_legal(request.headers());
                body
            })
        })
    };
    let names = match structured {
        true => ["data", "data_base64"],
        false => ["payload", "body"],
    };
    let body = of(&all, true).expect("a batch puts everything into its body");
    let items: Vec<Item> = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(items.len(), rows.len());
    for (item, row) in items.iter().zip(&rows) {
        check(item, row, names, &body);
        if !structured {
            assert_eq!(text(item, "topic").as_ref(), Some(&row.topic));
            assert_eq!(text(item, "key"), row.key);
            assert_eq!(text(item, "type"), row.kind);
            let headers = item.get("headers").map(|raw| raw.get());
            let headers: Value = serde_json::from_str(headers.unwrap_or("{}")).unwrap();
            for (name, _) in &row.headers {
                assert!(headers[name].is_string());
            }
        }
    }
    if structured && let Ok(body) = of(&all[..1], false) {
        let item: Item = serde_json::from_slice(&body).expect("JSON");
        check(&item, &rows[0], names, &body);
    }
});
