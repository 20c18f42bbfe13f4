//! The answer to a batch: a document with results, or anything else.
//!
//! Parts: status, the chunks of the body.
#![no_main]

use base64::{Engine, prelude::BASE64_STANDARD};
use libfuzzer_sys::fuzz_target;
use outbox_relay::{
    delivery::{EXCERPT, fuzz},
    message::{Class, Outcome},
};
use outbox_relay_fuzz::{Parts, assert_one_line};
use reqwest::Url;
use serde_json::Value;
use uuid::Uuid;

/// Whether the document says somewhere that this message was accepted. It knows less than the relay: of two members of one
/// name it sees the last.
fn accepted(document: &Value, id: Uuid) -> bool {
    let results = document.get("results").and_then(Value::as_array);
    results.into_iter().flatten().any(|result| {
        let named = result
            .get("id")
            .and_then(Value::as_str)
            .map(Uuid::try_parse);
        let status = result.get("status").and_then(Value::as_u64);
        named == Some(Ok(id)) && status.is_some_and(|status| (200..300).contains(&status))
    })
}

fn check(outcome: &Outcome) {
    assert_eq!(outcome.class == Class::Success, outcome.error.is_none());
    outcome.error.as_deref().map(assert_one_line);
    let text = outcome.response.as_deref().unwrap_or_default();
    assert!(text.len() <= EXCERPT && !text.contains('\0'));
    assert!(outcome.class != Class::Success || outcome.retry_after.is_none());
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let status = u16::try_from(parts.number()).unwrap_or_default();
    let chunks = parts.rest();
    let body = chunks.concat();
    let url = Url::parse("https://h.example/hook").unwrap();
    let rows = [1, 2, 0xa].map(|id| Parts::new(b"t").row(id));
    let rows: Vec<_> = rows.iter().collect();
    let Some(answered) = fuzz::answered(&url, status, &[], &chunks, &rows) else {
        return;
    };
    check(&answered.whole);
    let Some(each) = answered.each else {
        // All or nothing: a 207 without results that can be read delivers nobody.
        assert!(status != 207 || answered.whole.class != Class::Success);
        return;
    };
    assert!((200..300).contains(&status));
    assert_eq!(each.len(), rows.len());
    let document = serde_json::from_slice::<Value>(&body);
    for (outcome, row) in each.iter().zip(&rows) {
        check(outcome);
        if let Ok(document) = &document
            && outcome.class == Class::Success
        {
            let shown = BASE64_STANDARD.encode(&body);
            assert!(
                accepted(document, row.id),
                "{} is nowhere accepted in {shown}",
                row.id
            );
        }
    }
});
