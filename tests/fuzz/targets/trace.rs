//! The trace context of a row: what is read is written again as it is sent, and what is written is read.
//!
//! Parts: two headers' values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outbox_relay::trace::{Context, TRACEPARENT};
use outbox_relay_fuzz::Parts;

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let (text, other) = (parts.text(), parts.optional());
    let read = Context::parse(&text);
    if let Some(context) = read {
        let sent = context.to_string();
        assert_eq!(sent.len(), 55, "{sent}");
        assert_eq!(Context::parse(&sent), Some(context), "{sent}");
        let [_, trace, span, _] = sent.split('-').collect::<Vec<_>>()[..] else {
            panic!("four fields: {sent}");
        };
        assert!(text.contains(trace) && text.contains(span), "{text}");
        assert!(trace.contains(|c| c != '0') && span.contains(|c| c != '0'));
    }
    let header = |text: &str| ("TraceParent".to_owned(), text.to_owned());
    let mut headers = vec![header(&text), ("x".into(), text.clone())];
    assert_eq!(Context::of_row(&headers), read);
    if let Some(other) = other {
        headers.push((TRACEPARENT.to_owned(), other));
        assert_eq!(Context::of_row(&headers), None);
    }
});
