//! The words of the product, the same in SQL, Rust, JSON, logs and documentation.
//!
//! A *message* is a row that an application committed. A *delivery* is one message on its way to one endpoint. Each HTTP
//! request is an *attempt*; what the other side did is its *outcome* (data, never an error of ours); what follows from it
//! is a *settlement*. Nothing here knows of a database, a socket or a clock.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use uuid::Uuid;

use crate::saga::{self, Step};

/// The rows of one topic bound for one endpoint: the unit that a claim locks.
///
/// `endpoint` is the message's own column: empty until fan-out gives a row an endpoint of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The topic of all its messages.
    pub topic: String,
    /// The `endpoint` column of all its messages; empty for what the application inserted.
    pub endpoint: String,
}

impl Lane {
    /// Whether its messages are steps of sagas: their endpoint is in the plan, whatever the routes are.
    pub fn is_of_sagas(&self) -> bool {
        self.topic.starts_with(saga::TOPIC)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.endpoint.as_str() {
            "" => f.write_str(&self.topic),
            endpoint => write!(f, "{} → {endpoint}", self.topic),
        }
    }
}

/// The right to deliver a batch of messages of one lane to one endpoint, kept for as long as the relay lives.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Its number, unique among the living.
    pub id: i64,
    /// Where its messages come from.
    pub lane: Lane,
    /// Where its messages go.
    pub endpoint: String,
    /// The messages, ascending.
    pub ids: Vec<Uuid>,
}

/// One message under a lease, with all that an attempt needs.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The lease that gives the right to deliver it.
    pub lease: i64,
    /// The `endpoint` column of its row (part of the row's identity), not the destination.
    pub lane_endpoint: String,
    /// The message's identity.
    pub id: Uuid,
    /// The message's topic.
    pub topic: String,
    /// The ordering key.
    pub key: Option<String>,
    /// The event or command type.
    pub kind: Option<String>,
    /// The stored bytes; `None` where the row has neither payload nor body.
    pub body: Option<Bytes>,
    /// `application/json` for a payload, the row's own `content_type` for a body.
    pub content_type: Option<String>,
    /// The row's own headers.
    pub headers: Vec<(String, String)>,
    /// Insertion order.
    pub seq: i64,
    /// Attempts that were answered or failed before this one.
    pub attempts: u32,
    /// How many times a relay died with this message under its lease.
    pub lost: u32,
    /// How many times the receiver put it off; that used no attempt.
    pub throttled: u32,
    /// Raised by every replay, so that a late answer to an earlier life can't touch this one.
    pub generation: i32,
    /// The endpoint that it was tried at while it was in its topic's own lane, under its id as the key; `None` if it was not.
    pub sent_to: Option<String>,
    /// Which step of which saga it is; `None`: it is none.
    pub step: Option<Arc<Step>>,
    /// When the row was inserted, RFC 3339 in UTC, by the database's clock.
    pub created_at: String,
    /// How old the row was when it was loaded.
    pub age: Duration,
    /// How long after loading it must be given up; `Some(0)` when that is past.
    pub expires_in: Option<Duration>,
}

impl Delivery {
    /// The number of the next attempt, from 1; those that were lost with a relay or put off by the receiver count.
    pub fn attempt(&self) -> u32 {
        let before = self
            .attempts
            .saturating_add(self.lost)
            .saturating_add(self.throttled);
        before.saturating_add(1)
    }
}

/// What the other side did with one request, as a class: the word under which history, metrics and policies file it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// 2xx.
    Success,
    /// 3xx; never followed.
    Redirect,
    /// A status after which the same request may succeed later: 408, 409, 423, 425, 429, 5xx, and 4xx that no rule names.
    Unavailable,
    /// 401, 403, 404: usually a deployment or a secret that is wrong for a while.
    Misconfigured,
    /// A status that says this request will never be accepted: 400, 405, 406, 411, 413, 414, 415, 417, 421, 422, 426, 431, 451.
    Rejected,
    /// 410: the receiver asks to be left alone.
    Gone,
    /// 407: an intermediary refused, not the endpoint.
    Proxy,
    /// The host name could not be resolved.
    Dns,
    /// No connection: refused, unreachable, or any other failure to connect.
    Connect,
    /// No connection within the connect time-out.
    ConnectTimeout,
    /// The TLS handshake failed or the certificate is not trusted.
    Tls,
    /// The connection broke before the whole answer was there.
    Reset,
    /// Something that is no HTTP answer.
    Protocol,
    /// The whole answer was not there within the time-out.
    Timeout,
    /// The request could not be built from the row.
    Unsendable,
    /// Stopped by us, at shutdown or because the lease ran out; what the receiver did is unknown.
    Aborted,
    /// This host had no file descriptor or no memory left for a connection: nothing was sent.
    Exhausted,
    /// A fault of ours ended the attempt; what the receiver did is unknown.
    Panicked,
}

impl Class {
    /// The word in SQL, JSON, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Success => "success",
            Class::Redirect => "redirect",
            Class::Unavailable => "unavailable",
            Class::Misconfigured => "misconfigured",
            Class::Rejected => "rejected",
            Class::Gone => "gone",
            Class::Proxy => "proxy",
            Class::Dns => "dns",
            Class::Connect => "connect",
            Class::ConnectTimeout => "connect_timeout",
            Class::Tls => "tls",
            Class::Reset => "reset",
            Class::Protocol => "protocol",
            Class::Timeout => "timeout",
            Class::Unsendable => "unsendable",
            Class::Aborted => "aborted",
            Class::Exhausted => "exhausted",
            Class::Panicked => "panicked",
        }
    }
}

impl Class {
    /// Whether the receiver, or somebody in between, gave a whole answer.
    pub fn is_answer(self) -> bool {
        match self {
            Class::Success
            | Class::Redirect
            | Class::Unavailable
            | Class::Misconfigured
            | Class::Rejected
            | Class::Gone
            | Class::Proxy => true,
            Class::Dns
            | Class::Connect
            | Class::ConnectTimeout
            | Class::Tls
            | Class::Reset
            | Class::Protocol
            | Class::Timeout
            | Class::Unsendable
            | Class::Aborted
            | Class::Exhausted
            | Class::Panicked => false,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one request came to. Data: a delivery that fails is no error of ours.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its class.
    pub class: Class,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What went wrong, in words, without line breaks; `None` after a success.
    pub error: Option<String>,
    /// The first bytes of the answer's body, as valid UTF-8 without NUL.
    pub response: Option<String>,
    /// The answer's `Retry-After`, as a delay.
    pub retry_after: Option<Duration>,
    /// From the start of the request to the last byte of the answer.
    pub duration: Duration,
    /// What the history keeps of the request and its answer; `None` where there was none, or none is to be kept.
    pub exchange: Option<Arc<Exchange>>,
    /// What a step of a saga answered that is done: the whole body, if it is JSON of at most 64 KiB.
    pub output: Option<Arc<str>>,
    /// Where a step of a saga that was answered with 202 can be asked for.
    pub poll: Option<Arc<Poll>>,
}

/// Where a participant says how a step stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Poll {
    /// A URL of its endpoint; empty: nowhere any more.
    pub place: String,
    /// When to ask, if it said so.
    pub after: Option<Duration>,
}

/// A request and its answer as the history has them: nothing in them is secret.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// A JSON object: `method`, `url` without its query, `headers`, and of the body as it was sent `size` in bytes and
    /// `sha256` in hex.
    pub request: String,
    /// A JSON object of the answer's headers; `None` where there was no answer.
    pub response_headers: Option<String>,
}

/// Why a message became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The answer says that this request will never be accepted.
    Rejected,
    /// `max_attempts` is used up.
    Attempts,
    /// `max_age` is over.
    MaxAge,
    /// The row's own `expires_at` is past.
    Expired,
    /// Relays died with it under their lease more often than `max_lost`. Written by the reap, in SQL.
    Lost,
}

impl Reason {
    /// The word in SQL, JSON, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Attempts => "attempts",
            Reason::MaxAge => "max_age",
            Reason::Expired => "expired",
            Reason::Lost => "lost",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What follows for the message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Settlement {
    /// The row is removed and archived.
    Delivered,
    /// The row is due again after this delay.
    Retry(Duration),
    /// The same, and no attempt is used: the receiver put it off.
    PutOff(Duration),
    /// The row becomes a dead letter.
    Dead(Reason),
    /// The row is given back untouched: it was never sent, or it is gone.
    Release,
}

impl Settlement {
    /// The word in SQL and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Settlement::Delivered => "delivered",
            Settlement::Retry(_) => "retry",
            Settlement::PutOff(_) => "put_off",
            Settlement::Dead(_) => "dead",
            Settlement::Release => "release",
        }
    }
}
