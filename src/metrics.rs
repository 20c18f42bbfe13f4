//! What a relay counts, for Prometheus: its own work as it does it, and how its database stands, as it was sampled.
//!
//! Model: counters and histograms are this relay's alone, so replicas are added up. What begins with `outbox_database_` describes the
//! shared database, so every replica says about the same, and the maximum is taken.
//! Labels come from the configuration and from small closed sets, never from messages: no topic, key or id is one.
//! A scrape reads memory only.

mod on_the_way;
mod sample;
mod text;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

pub use self::{
    on_the_way::OnTheWay,
    sample::{Backlog, Sample, Standing},
    text::Format,
};
use crate::message::Class;

/// Seconds of a request.
const REQUEST: [f64; 13] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Seconds from commit to delivery: a few milliseconds, or days of retries.
const LAG: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 21600.0,
    86400.0,
];

/// Seconds of a call of the database.
const CALL: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// Messages in a claim or a settle.
const BATCH: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ToEndpoint {
    endpoint: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempt {
    endpoint: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Settled {
    endpoint: String,
    settlement: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Death {
    endpoint: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Claimed {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failed {
    call: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// All of them. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    whole: RwLock<()>,
    attempts: Family<Attempt, Counter>,
    settlements: Family<Settled, Counter>,
    lag: Family<ToEndpoint, Histogram, fn() -> Histogram>,
    requests: Family<ToEndpoint, Histogram, fn() -> Histogram>,
    held: Family<ToEndpoint, Gauge>,
    on_the_way: Family<ToEndpoint, Gauge>,
    claims: Family<Claimed, Counter>,
    claim_seconds: Histogram,
    claim_messages: Histogram,
    settle_seconds: Histogram,
    settle_messages: Histogram,
    failures: Family<Failed, Counter>,
    history_failures: Counter,
    reaped_relays: Counter,
    reaped_messages: Counter,
    rings: Counter,
    spans: Family<Claimed, Counter>,
    sampled: Sampled,
}

/// What describes the database.
#[derive(Default)]
struct Sampled {
    backlog: Family<ToEndpoint, Gauge>,
    oldest: Family<ToEndpoint, Gauge<f64, AtomicU64>>,
    dead: Family<Death, Gauge>,
    paused: Family<ToEndpoint, Gauge>,
    breaker: Family<ToEndpoint, Gauge>,
    leased: Family<ToEndpoint, Gauge>,
    relays: Gauge,
    horizon: Gauge<f64, AtomicU64>,
    bell: Gauge,
    connections: Gauge,
    samples: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// None of them has counted anything.
    pub fn new() -> Metrics {
        let histogram: fn(&'static [f64]) -> Histogram =
            |bounds| Histogram::new(bounds.iter().copied());
        let mut inner = Inner {
            registry: Registry::with_prefix("outbox"),
            whole: RwLock::new(()),
            attempts: Family::default(),
            settlements: Family::default(),
            lag: Family::new_with_constructor(|| Histogram::new(LAG)),
            requests: Family::new_with_constructor(|| Histogram::new(REQUEST)),
            held: Family::default(),
            on_the_way: Family::default(),
            claims: Family::default(),
            claim_seconds: histogram(&CALL),
            claim_messages: histogram(&BATCH),
            settle_seconds: histogram(&CALL),
            settle_messages: histogram(&BATCH),
            failures: Family::default(),
            history_failures: Counter::default(),
            reaped_relays: Counter::default(),
            reaped_messages: Counter::default(),
            rings: Counter::default(),
            spans: Family::default(),
            sampled: Sampled::default(),
        };
        inner.register();
        Metrics(Arc::new(inner))
    }

    /// So many connections to the database are open.
    pub fn connections(&self, open: usize) {
        let open = i64::try_from(open).unwrap_or(i64::MAX);
        self.0.sampled.connections.set(open);
    }

    /// What there is, in one of the two formats that Prometheus reads.
    pub fn text(&self, format: Format) -> String {
        let _whole = self.0.whole.read().unwrap_or_else(PoisonError::into_inner);
        text::encode(&self.0.registry, format)
    }

    /// An attempt at a message was made.
    pub fn attempt(&self, endpoint: &str, class: Class) {
        let outcome = class.as_str();
        let labels = Attempt {
            endpoint: endpoint.into(),
            outcome,
        };
        self.0.attempts.get_or_create(&labels).inc();
    }

    /// A request was made; one may have many messages.
    pub fn request(&self, endpoint: &str, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.0
            .requests
            .get_or_create(&to(endpoint))
            .observe(seconds);
    }

    /// A message was accepted, so long after it was inserted (or replayed).
    pub fn delivered(&self, endpoint: &str, lag: Duration) {
        self.0
            .lag
            .get_or_create(&to(endpoint))
            .observe(lag.as_secs_f64());
    }

    /// What followed for a message was written down.
    pub fn settled(&self, endpoint: &str, settlement: &'static str) {
        let labels = Settled {
            endpoint: endpoint.into(),
            settlement,
        };
        self.0.settlements.get_or_create(&labels).inc();
    }

    /// This relay holds so many messages for each endpoint. Those that are not named are forgotten.
    pub fn held<'a>(&self, held: impl Iterator<Item = (&'a str, usize)>) {
        let _whole = self.alone();
        self.0.held.clear();
        for (endpoint, messages) in held {
            let messages = i64::try_from(messages).unwrap_or(i64::MAX);
            self.0.held.get_or_create(&to(endpoint)).set(messages);
        }
    }

    /// A claim came back.
    pub fn claim(&self, state: &'static str, messages: usize, took: Duration) {
        self.0.claims.get_or_create(&Claimed { state }).inc();
        self.0.claim_seconds.observe(took.as_secs_f64());
        if messages > 0 {
            self.0.claim_messages.observe(count(messages));
        }
    }

    /// A settle came back.
    pub fn settle(&self, messages: usize, took: Duration) {
        self.0.settle_seconds.observe(took.as_secs_f64());
        self.0.settle_messages.observe(count(messages));
    }

    /// A call of the database failed.
    pub fn failed(&self, call: &str) {
        self.0
            .failures
            .get_or_create(&Failed { call: call.into() })
            .inc();
    }

    /// A settle was done without its history.
    pub fn history_failed(&self) {
        self.0.history_failures.inc();
    }

    /// A relay that was dead was reaped, with so many messages.
    pub fn reaped(&self, messages: i32) {
        self.0.reaped_relays.inc();
        self.0
            .reaped_messages
            .inc_by(u64::try_from(messages).unwrap_or(0));
    }

    /// An insert woke this relay.
    pub fn rang(&self, rings: u64) {
        self.0.rings.inc_by(rings);
    }

    /// So many spans were sent to the collector, or dropped.
    pub fn spans(&self, state: &'static str, spans: u64) {
        self.0.spans.get_or_create(&Claimed { state }).inc_by(spans);
    }

    /// How the database stands now. What is not in it any more is forgotten.
    pub fn sampled(&self, sample: &Sample) {
        let _whole = self.alone();
        let to_set = &self.0.sampled;
        to_set.samples.inc();
        for family in [
            &to_set.backlog,
            &to_set.paused,
            &to_set.breaker,
            &to_set.leased,
        ] {
            family.clear();
        }
        to_set.oldest.clear();
        to_set.dead.clear();
        for backlog in &sample.backlogs {
            let labels = to(&backlog.endpoint);
            to_set.backlog.get_or_create(&labels).set(backlog.messages);
            to_set.oldest.get_or_create(&labels).set(backlog.oldest);
        }
        for standing in &sample.endpoints {
            let labels = to(&standing.endpoint);
            to_set
                .paused
                .get_or_create(&labels)
                .set(standing.paused.into());
            to_set.breaker.get_or_create(&labels).set(standing.breaker);
            to_set.leased.get_or_create(&labels).set(standing.leased);
        }
        for (endpoint, reason, count) in &sample.dead {
            let labels = Death {
                endpoint: endpoint.clone(),
                reason: reason.clone(),
            };
            to_set.dead.get_or_create(&labels).set(*count);
        }
        to_set.relays.set(sample.relays);
        to_set.horizon.set(sample.horizon);
        to_set.bell.set(sample.bell.into());
    }

    /// Whoever scrapes sees all of what is set meanwhile, or nothing of it.
    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.whole.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

// === impl Inner ===

impl Inner {
    fn register(&mut self) {
        let build: Family<Build, Gauge> = Family::default();
        build
            .get_or_create(&Build {
                version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        let all = &mut self.registry;
        all.register("build", "Always 1; the version is a label", build);
        all.register(
            "attempts",
            "Attempts at messages, by the class of their outcome",
            self.attempts.clone(),
        );
        all.register(
            "settlements",
            "What followed for messages: delivered, retry, put_off, dead",
            self.settlements.clone(),
        );
        all.register_with_unit(
            "delivery_lag",
            "From when a message was inserted, or replayed, to its 2xx",
            Unit::Seconds,
            self.lag.clone(),
        );
        all.register_with_unit(
            "request_duration",
            "How long requests took",
            Unit::Seconds,
            self.requests.clone(),
        );
        all.register(
            "held_messages",
            "Messages that this relay has claimed and not finished",
            self.held.clone(),
        );
        all.register(
            "requests_in_flight",
            "Requests of this relay that are on their way",
            self.on_the_way.clone(),
        );
        all.register("claims", "Claims by what came of them", self.claims.clone());
        all.register_with_unit(
            "claim_duration",
            "How long claims took, with what they read",
            Unit::Seconds,
            self.claim_seconds.clone(),
        );
        all.register(
            "claim_messages",
            "Messages in a claim that took some",
            self.claim_messages.clone(),
        );
        all.register_with_unit(
            "settle_duration",
            "How long settles took",
            Unit::Seconds,
            self.settle_seconds.clone(),
        );
        all.register(
            "settle_messages",
            "Messages in a settle",
            self.settle_messages.clone(),
        );
        all.register(
            "call_failures",
            "Calls of the database that failed",
            self.failures.clone(),
        );
        all.register(
            "history_failures",
            "Settles that were done without their history, which could not be written",
            self.history_failures.clone(),
        );
        all.register(
            "reaped_relays",
            "Dead relays whose messages this one made due again",
            self.reaped_relays.clone(),
        );
        all.register(
            "reaped_messages",
            "Messages that they had",
            self.reaped_messages.clone(),
        );
        all.register(
            "doorbell_rings",
            "Inserts that woke this relay",
            self.rings.clone(),
        );
        all.register(
            "spans",
            "Spans of requests: sent to the collector, or dropped",
            self.spans.clone(),
        );
        let sampled = &self.sampled;
        let database = all.sub_registry_with_prefix("database");
        database.register(
            "samples",
            "How often the following were looked for",
            sampled.samples.clone(),
        );
        database.register("backlog_messages", "Pending messages by endpoint, each lane counted up to a limit; endpoint empty: no relay can deliver them", sampled.backlog.clone());
        database.register_with_unit(
            "oldest_due",
            "How long the oldest pending message has been due",
            Unit::Seconds,
            sampled.oldest.clone(),
        );
        database.register(
            "dead_letters",
            "Dead letters among the newest 10000",
            sampled.dead.clone(),
        );
        database.register(
            "endpoint_paused",
            "Whether somebody paused the endpoint",
            sampled.paused.clone(),
        );
        database.register(
            "endpoint_breaker",
            "The breaker: 0 closed, 1 half open, 2 open",
            sampled.breaker.clone(),
        );
        database.register(
            "leased_messages",
            "Messages under the leases of all relays",
            sampled.leased.clone(),
        );
        database.register(
            "connections",
            "Connections of this relay to the database, but for those of the doorbell",
            sampled.connections.clone(),
        );
        database.register("relays", "Relays that live", sampled.relays.clone());
        database.register_with_unit(
            "horizon_age",
            "Age of the oldest snapshot: what was delivered since can not be vacuumed",
            Unit::Seconds,
            sampled.horizon.clone(),
        );
        database.register(
            "doorbell",
            "Whether inserts wake a relay",
            sampled.bell.clone(),
        );
    }
}

fn to(endpoint: &str) -> ToEndpoint {
    ToEndpoint {
        endpoint: endpoint.into(),
    }
}

fn count(messages: usize) -> f64 {
    f64::from(u32::try_from(messages).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
