//! The body of `POST /v1/traces`, in the JSON encoding of OTLP: ids in hex, 64-bit numbers as texts.

use serde_json::{Value, json};

use crate::{
    message::Class,
    trace::{Context, Span},
};

/// `SPAN_KIND_CLIENT`.
const CLIENT: u8 = 3;

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Of these spans, which this service made.
pub(super) fn request(service: &str, relay: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", service),
            text("service.version", version),
            text("service.instance.id", relay),
        ]},
        "scopeSpans": [{
            "scope": {"name": "outbox-relay", "version": version},
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }]})
}

fn span(span: &Span) -> Value {
    let ended = span
        .started
        .saturating_add(u64::try_from(span.duration.as_nanos()).unwrap_or(0));
    let mut one = json!({
        "traceId": span.context.trace_id(),
        "spanId": span.context.span_id(),
        "flags": flags(&span.context),
        "name": format!("deliver {}", span.topic),
        "kind": CLIENT,
        "startTimeUnixNano": span.started.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes(span),
    });
    if let Some(parent) = &span.parent {
        one["parentSpanId"] = parent.span_id().into();
    }
    if !span.links.is_empty() {
        let link = |link: &Context| json!({"traceId": link.trace_id(), "spanId": link.span_id(), "flags": flags(link)});
        one["links"] = span.links.iter().map(link).collect();
    }
    if span.class != Class::Success {
        one["status"] = json!({"code": ERROR, "message": span.class.as_str()});
    }
    one
}

fn flags(context: &Context) -> u8 {
    u8::from(context.sampled)
}

/// By OpenTelemetry's conventions for messaging and for HTTP clients; what begins with `outbox.` is our own.
fn attributes(span: &Span) -> Vec<Value> {
    let mut all = vec![
        text("messaging.system", "outbox"),
        text("messaging.operation.name", "deliver"),
        text("messaging.operation.type", "send"),
        text("messaging.destination.name", &span.topic),
        text("http.request.method", &span.method),
        text("url.full", &span.url),
        text("outbox.endpoint", &span.endpoint),
    ];
    match span.message {
        Some(id) => {
            all.push(text("messaging.message.id", &id.to_string()));
            all.push(number("outbox.attempt", u64::from(span.attempt)));
        }
        None => {
            let messages = u64::try_from(span.messages).unwrap_or(u64::MAX);
            all.push(number("messaging.batch.message_count", messages));
        }
    }
    let status = span.status.map(u64::from);
    all.extend(status.map(|status| number("http.response.status_code", status)));
    if span.class != Class::Success {
        all.push(text("error.type", span.class.as_str()));
    }
    all
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}
