//! What an operator reads of an attempt.

use crate::{
    message::{Delivery, Outcome, Settlement},
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
    let trace = span.or_else(|| Context::of_row(&delivery.headers));
    let trace_id = trace.map(|trace| trace.trace_id());
    let span_id = span.map(|span| span.span_id());
    match settlement {
        Settlement::Delivered | Settlement::Release => {}
        Settlement::Retry(delay) | Settlement::PutOff(delay) => tracing::warn!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, retry_in = ?delay, trace_id, span_id,
            "delivery failed"
        ),
        Settlement::Dead(reason) => tracing::error!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, reason = %reason, trace_id, span_id,
            "given up: dead letter"
        ),
    }
}
