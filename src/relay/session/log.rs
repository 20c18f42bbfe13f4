//! What an operator reads of an attempt.

use crate::message::{Delivery, Outcome, Settlement};

/// One line per attempt that failed.
pub(super) fn attempt(
    endpoint: &str,
    delivery: &Delivery,
    outcome: &Outcome,
    settlement: &Settlement,
) {
    let error = outcome.error.as_deref().unwrap_or_default();
    let (id, topic, attempt) = (delivery.id, &delivery.topic, delivery.attempt());
    match settlement {
        Settlement::Delivered | Settlement::Release => {
            tracing::debug!(message.id = %id, topic, endpoint, attempt, duration = ?outcome.duration, "delivered");
        }
        Settlement::Retry(delay) | Settlement::PutOff(delay) => tracing::warn!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, retry_in = ?delay, "delivery failed"
        ),
        Settlement::Dead(reason) => tracing::error!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, reason = %reason, "given up: dead letter"
        ),
    }
}
