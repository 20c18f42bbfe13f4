//! Gives each request a span of the trace that its message belongs to.
//!
//! Without anybody who collects spans a trace is only continued: a receiver must not hang below a span that nobody will ever
//! see for want of a parent. With one, a message without a trace begins one, sampled as configured; where the message has
//! one, whoever began it has decided. Handing over a span never waits: what does not fit is dropped, and counted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use rand::{RngExt, rngs::StdRng};
use tokio::sync::mpsc;

use crate::{
    delivery::Endpoint,
    message::{Delivery, Outcome},
    metrics::Metrics,
    trace::{Context, Propagation, Span},
};

/// A span has so many links at most, as in OpenTelemetry's own libraries: a queue of them is held for a collector that is away.
const LINKS: usize = 128;

/// All clones are one.
#[derive(Clone)]
pub struct Tracer(Arc<Inner>);

struct Inner {
    dice: Mutex<StdRng>,
    export: Option<Export>,
}

/// Where spans go.
pub struct Export {
    /// To whom collects them.
    pub spans: mpsc::Sender<Span>,
    /// Share of the traces that begin here that is recorded.
    pub sample: f64,
}

/// A request that was started.
#[derive(Debug)]
pub(super) struct Started {
    context: Context,
    parent: Option<Context>,
    links: Vec<Context>,
    at: u64,
    messages: usize,
}

// === impl Tracer ===

impl Tracer {
    /// Draws from this generator.
    pub fn new(dice: StdRng, export: Option<Export>) -> Tracer {
        Tracer(Arc::new(Inner {
            dice: Mutex::new(dice),
            export,
        }))
    }

    /// A request with these messages begins: what it tells the receiver, and what will be told of it.
    pub(super) fn begin(
        &self,
        endpoint: &Endpoint,
        deliveries: &[&Delivery],
    ) -> (Propagation, Option<Box<Started>>) {
        if !endpoint.trace {
            return (Propagation::Untouched, None);
        }
        let contexts = || {
            deliveries
                .iter()
                .filter_map(|one| Context::of_row(&one.headers))
        };
        // Several messages are of several traces: their request begins one of its own, with links to theirs.
        let (parent, mut links) = match deliveries {
            [only] => (Context::of_row(&only.headers), Vec::new()),
            _ => (None, contexts().collect()),
        };
        let context = match (parent, &self.0.export) {
            (Some(parent), Some(_)) => parent.child(&mut *self.dice()),
            // Nobody will ever see the attempt's.
            (Some(parent), None) => parent,
            (None, Some(export)) => {
                let mut dice = self.dice();
                let sampled = match links.as_slice() {
                    [] => dice.random_bool(export.sample),
                    links => links.iter().any(|link| link.sampled),
                };
                Context::root(sampled, &mut *dice)
            }
            (None, None) => return (Propagation::Dropped, None),
        };
        let propagation = Propagation::Replaced {
            context,
            with_state: parent.is_some(),
        };
        // It may lie in the queue for long.
        links.truncate(LINKS);
        links.shrink_to_fit();
        let started = Started {
            context,
            parent,
            links,
            at: now(),
            messages: deliveries.len(),
        };
        (propagation, Some(Box::new(started)))
    }

    /// It has ended; `delivery` is the first of its messages.
    pub(super) fn end(
        &self,
        started: Started,
        endpoint: &Endpoint,
        delivery: &Delivery,
        outcome: &Outcome,
        metrics: &Metrics,
    ) {
        let Some(export) = &self.0.export else { return };
        if !started.context.sampled {
            return;
        }
        let Started {
            context,
            parent,
            links,
            at,
            messages,
        } = started;
        let span = Span {
            context,
            parent,
            links,
            started: at,
            duration: outcome.duration,
            endpoint: endpoint.name.clone(),
            method: endpoint.format.method.to_string(),
            url: endpoint.traced_url(),
            topic: delivery.topic.clone(),
            message: (endpoint.batch.is_none() || messages == 1).then_some(delivery.id),
            messages,
            attempt: delivery.attempt(),
            class: outcome.class,
            status: outcome.status,
        };
        if export.spans.try_send(span).is_err() {
            metrics.spans("dropped", 1);
        }
    }

    fn dice(&self) -> MutexGuard<'_, StdRng> {
        // A generator can't be left half-way.
        self.0.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Started ===

impl Started {
    pub(super) fn context(&self) -> Context {
        self.context
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "spans of several hosts are put in order by the wall clock; nothing is decided by it"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}
