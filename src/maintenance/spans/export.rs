//! The sender.

use std::time::Duration;

use bytes::Bytes;
use tokio::{sync::mpsc, time};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Config, FLUSH, otlp};
use crate::{
    delivery::Client,
    message::{Class, Outcome},
    metrics::Metrics,
    trace::Span,
};

/// Spans in one request at most.
const BATCH: usize = 512;

/// ... and with their links, each of which is as long as a span's beginning.
const PARTS: usize = 2048;

/// So long the first span waits for others.
const GATHER: Duration = Duration::from_secs(1);

/// Between tries of one batch, as often as there are pauses.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

struct Exporter<'a> {
    client: Client,
    config: &'a Config,
    /// The relay's name.
    relay: &'a str,
    metrics: &'a Metrics,
    stop: &'a CancellationToken,
    /// The collector refuses or does not answer, which has been said.
    failing: bool,
}

/// Sends until the stop, and then what is left.
pub async fn export(
    config: &Config,
    relay: &str,
    spans: mpsc::Receiver<Span>,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let client = match Client::new(&config.endpoint) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "spans can't be sent to their collector");
            return;
        }
    };
    let exporter = Exporter {
        client,
        config,
        relay,
        metrics,
        stop,
        failing: false,
    };
    let late = async {
        stop.cancelled().await;
        time::sleep(FLUSH).await;
    };
    tokio::select! {
        () = exporter.run(spans) => {}
        () = late => tracing::warn!("the collector did not take the last spans in time"),
    }
}

// === impl Exporter ===

impl Exporter<'_> {
    /// Ends when the stop has come and the queue is empty.
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let stop = self.stop;
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let first = tokio::select! {
                first = spans.recv() => first,
                () = stop.cancelled() => {
                    // What is in the queue stays to be had.
                    spans.close();
                    spans.recv().await
                }
            };
            let Some(first) = first else { return };
            batch.push(first);
            let gathered = async {
                while !is_full(&batch) {
                    let Some(span) = spans.recv().await else {
                        return;
                    };
                    batch.push(span);
                }
            };
            tokio::select! {
                () = gathered => {}
                () = time::sleep(GATHER) => {}
                () = stop.cancelled() => {
                    spans.close();
                    while !is_full(&batch) && let Ok(span) = spans.try_recv() {
                        batch.push(span);
                    }
                }
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    async fn send(&mut self, batch: &[Span]) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let body = otlp::request(&self.config.service, self.relay, batch).to_string();
        let body = Bytes::from(body);
        let mut pauses = PAUSES.iter();
        loop {
            let delivery = crate::maintenance::post(Uuid::nil(), "outbox.spans", body.clone());
            let outcome = self.client.attempt(&delivery).await;
            if outcome.class == Class::Success {
                self.metrics.spans("sent", count);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the collector takes spans again");
                }
                return;
            }
            self.complain(&outcome);
            let pause = pauses.next().filter(|_| may_help(&outcome));
            let Some(pause) = pause else { break };
            tokio::select! {
                () = time::sleep(*pause) => {}
                () = self.stop.cancelled() => break,
            }
        }
        self.metrics.spans("dropped", count);
    }

    /// Once, however long it lasts.
    fn complain(&mut self, outcome: &Outcome) {
        if std::mem::replace(&mut self.failing, true) {
            return;
        }
        let error = outcome.error.as_deref().unwrap_or_default();
        tracing::warn!(
            outcome = outcome.class.as_str(),
            status = outcome.status,
            error,
            "the collector does not take spans: they are dropped until it does"
        );
    }
}

/// Whether the same request may be taken later, as the protocol says.
fn may_help(outcome: &Outcome) -> bool {
    match outcome.status {
        Some(status) => matches!(status, 429 | 502..=504),
        None => true,
    }
}

fn is_full(batch: &[Span]) -> bool {
    let parts: usize = batch.iter().map(|span| 1 + span.links.len()).sum();
    batch.len() >= BATCH || parts >= PARTS
}
