//! What an operator reads of an attempt.

use crate::{
    message::{Class, Delivery, Outcome, Settlement},
    trace::Context,
};

/// One line per attempt that failed. `span` is the attempt's; without one, the trace is that of the row.
pub(super) fn attempt(
    endpoint: &str,
    delivery: &Delivery,
    outcome: &Outcome,
    settlement: &Settlement,
    span: Option<Context>,
) {
    let error = outcome.error.as_deref().unwrap_or_default();
    let (id, topic, attempt) = (delivery.id, &delivery.topic, delivery.attempt());
    if matches!(settlement, Settlement::Delivered | Settlement::Release) {
        tracing::debug!(message.id = %id, topic, endpoint, attempt, duration = ?outcome.duration, "delivered");
        return;
    }
    // A step of a saga that its participant has taken on, or that was asked how it stands.
    if let (Settlement::PutOff(_), Class::Success) = (settlement, outcome.class) {
        tracing::debug!(message.id = %id, topic, endpoint, attempt, duration = ?outcome.duration, "not done yet");
        return;
    }
    let trace = span.or_else(|| Context::of_row(&delivery.headers));
    let trace_id = trace.map(|trace| trace.trace_id());
    let span_id = span.map(|span| span.span_id());
    match settlement {
        Settlement::Delivered | Settlement::Release => {}
        Settlement::Retry(delay) | Settlement::PutOff(delay) => tracing::warn!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, retry_in = ?delay, trace_id, span_id,
            "delivery failed"
        ),
        Settlement::Dead(reason) if delivery.step.is_some() => tracing::warn!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, reason = %reason, trace_id, span_id,
            "given up: its saga goes back, or is parked"
        ),
        Settlement::Dead(reason) => tracing::error!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, reason = %reason, trace_id, span_id,
            "given up: dead letter"
        ),
    }
}
