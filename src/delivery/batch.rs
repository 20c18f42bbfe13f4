//! Several messages in one request: how many, under which id, and what its answer says of each: pure.
//!
//! A batch is of one lane, so all its messages have one topic. What differs between them stands in the body, never in a
//! header or in the URL. It succeeds or fails as a whole, unless its answer has results for single messages.

mod results;

use uuid::Uuid;

use super::{Endpoint, answer::Answer, format::Shape, idempotency, target};
use crate::message::{Delivery, Outcome};

/// Bytes that are read of an answer that may have results.
pub const RESULTS: usize = 1 << 20;

/// The space of the ids of batches.
const SPACE: Uuid = Uuid::from_u128(0x6f5c_2f0a_8a5b_4c1e_9d37_40b1_c9e4_7a52);

/// How many messages one request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// So many at most.
    pub messages: usize,
    /// So many bytes of payload at most; one message is always taken.
    pub bytes: usize,
}

/// What came of a request with several messages.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Of the request as a whole.
    pub whole: Outcome,
    /// Of each message, in the order of the request. `None`: what came of the whole came of each.
    pub each: Option<Vec<Outcome>>,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Config {
        Config {
            messages: 100,
            bytes: 1 << 20,
        }
    }
}

/// What of an endpoint can't be in batches: the key that is wrong, and why.
pub fn refusal(endpoint: &Endpoint) -> Option<(&'static str, String)> {
    endpoint.batch.as_ref()?;
    let binary = match endpoint.format.shape {
        Shape::Raw | Shape::Structured { .. } => false,
        Shape::Binary { .. } => true,
    };
    if binary {
        let message = "can't be cloudevents-binary beside batch: in that format the headers are one event's; \
                       cloudevents-structured has batches";
        return Some(("format", message.into()));
    }
    let fields = target::fields(&endpoint.url);
    let field = fields.into_iter().find(|field| *field != "topic")?;
    let message = format!(
        "can't have {{{field}}} beside batch: the messages of a batch share {{topic}} only"
    );
    Some(("url", message))
}

/// The id of a batch: the same for the same messages in whatever order, and another for any others.
pub(super) fn id(deliveries: &[&Delivery]) -> Uuid {
    let keys = deliveries.iter().map(|delivery| idempotency::key(delivery));
    let mut keys: Vec<Uuid> = keys.collect();
    keys.sort_unstable();
    let name: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
    Uuid::new_v5(&SPACE, &name)
}

/// What the answer says of each message.
pub(super) fn answered(whole: Outcome, answer: &Answer, deliveries: &[&Delivery]) -> Answered {
    results::read(whole, &answer.body, answer.cut, deliveries)
}
