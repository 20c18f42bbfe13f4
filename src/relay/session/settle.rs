//! The end of a row's way: what was decided is written down, in batches.

use std::collections::{BTreeSet, VecDeque};

use tokio::time::Instant;

use super::Session;
use crate::{
    message::Settlement,
    metrics::Metrics,
    relay::crash::{self, Point},
    store::{Error, Mandate, Records, Registration, Settle, SettleReport, Store},
};

/// So many in one statement: its cost grows faster than its batch, and after an outage everything is finished at once.
const BATCH: usize = 500;

/// What is settled while the same turn claims.
pub(super) struct Beside {
    store: Store,
    me: Registration,
    name: String,
    records: Records,
    /// By lane endpoint.
    batches: VecDeque<(String, Vec<Settle>)>,
    done: Vec<(String, Vec<Settle>, Result<SettleReport, Error>)>,
    metrics: Metrics,
}

impl Beside {
    /// Settles one batch after the other, up to the first one that fails.
    pub(super) async fn run(mut self) -> Beside {
        while let Some((lane_endpoint, batch)) = self.batches.pop_front() {
            crash::point(Point::Settle);
            let started = Instant::now();
            let settled = self
                .store
                .settle(&self.me, &self.name, &lane_endpoint, &batch, self.records)
                .await;
            crash::point(Point::Settled);
            let failed = settled.is_err();
            if !failed {
                self.metrics.settle(batch.len(), started.elapsed());
            }
            self.done.push((lane_endpoint, batch, settled));
            if failed {
                break;
            }
        }
        self
    }
}

impl Session<'_> {
    /// Takes what can be settled beside the claims of this turn: nothing that opens a key, since they ask for it at once.
    pub(super) fn beside(&mut self) -> Beside {
        let mut batches = VecDeque::new();
        let orders = &self.destinations;
        let opens = |one: &Settle| one.key.is_some() && orders.order(&one.lane).is_by_key();
        self.unsettled.retain(|lane_endpoint, settles| {
            if settles.iter().any(opens) {
                return true;
            }
            let mut left = std::mem::take(settles);
            while !left.is_empty() {
                let batch = left.drain(..left.len().min(BATCH)).collect();
                batches.push_back((lane_endpoint.clone(), batch));
            }
            false
        });
        Beside {
            store: self.stage.settles.clone(),
            me: self.me.clone(),
            name: self.plan.config.name.clone(),
            records: self.plan.records,
            batches,
            done: Vec::new(),
            metrics: self.stage.metrics.clone(),
        }
    }

    /// What follows from those. What failed stays for the next turn.
    pub(super) async fn settled_beside(&mut self, beside: Beside) {
        let mut left: Vec<(String, Vec<Settle>)> = beside.batches.into();
        for (lane_endpoint, batch, settled) in beside.done {
            let rest = match settled {
                // Not `succeeded`: what was claimed meanwhile may have failed, and that waits.
                Ok(report) => {
                    self.settled(&batch, report).await;
                    continue;
                }
                Err(error) => self.refused(&lane_endpoint, batch, error).await.err(),
            };
            left.extend(rest.map(|rest| (lane_endpoint, rest)));
        }
        for (lane_endpoint, settles) in left {
            self.unsettled
                .entry(lane_endpoint)
                .or_default()
                .extend(settles);
        }
    }

    /// Settles all that has finished. What fails stays for the next turn.
    pub(super) async fn settle(&mut self) {
        let endpoints: Vec<String> = self.unsettled.keys().cloned().collect();
        for lane_endpoint in endpoints {
            let Some(mut left) = self.unsettled.remove(&lane_endpoint) else {
                continue;
            };
            while !left.is_empty() {
                let batch = left.drain(..left.len().min(BATCH)).collect();
                if let Err(rest) = self.settle_batch(&lane_endpoint, batch).await {
                    left.extend(rest);
                    self.unsettled.insert(lane_endpoint, left);
                    return;
                }
            }
        }
    }

    pub(super) async fn settle_once(
        &mut self,
        lane_endpoint: &str,
        batch: &[Settle],
    ) -> Result<(), Error> {
        let name = &self.plan.config.name;
        crash::point(Point::Settle);
        let started = Instant::now();
        let report = self
            .stage
            .settles
            .settle(&self.me, name, lane_endpoint, batch, self.plan.records)
            .await?;
        crash::point(Point::Settled);
        self.stage.metrics.settle(batch.len(), started.elapsed());
        self.succeeded();
        self.settled(batch, report).await;
        Ok(())
    }

    /// What follows from a settle.
    async fn settled(&mut self, batch: &[Settle], report: SettleReport) {
        if let Some(error) = report.history_error {
            self.stage.metrics.history_failed();
            tracing::error!(
                error,
                messages = batch.len(),
                "history and archive could not be written; the messages are settled"
            );
        }
        if batch
            .iter()
            .any(|one| one.settlement == Settlement::Release)
        {
            self.ear.given_back = true;
            self.look_soon();
        }
        let now = Instant::now();
        for lane in report.filled {
            self.lanes.filled(lane, now);
        }
        let settled: BTreeSet<_> = report.settled.into_iter().collect();
        for settle in batch {
            if let Some(destination) = self.destinations.get_mut(&settle.endpoint) {
                // There is room again, over all relays.
                destination.saturated_until(now);
            }
            if let Some(left) = self.leases.get_mut(&settle.lease) {
                *left -= 1;
                if *left == 0 {
                    self.leases.remove(&settle.lease);
                }
            }
            if let Some(key) = &settle.key
                && self.destinations.order(&settle.lane).is_by_key()
            {
                // Whether it is really open, and to whom, the claim decides.
                self.lanes.open(&settle.lane, key.clone(), now);
            }
            if settle.settlement == Settlement::Release {
                continue;
            }
            if settled.contains(&settle.id) {
                let settlement = settle.settlement.as_str();
                self.stage.metrics.settled(&settle.endpoint, settlement);
            } else {
                tracing::warn!(
                    message.id = %settle.id, settlement = settle.settlement.as_str(),
                    "this result came too late: the message is no longer ours, or gone"
                );
            }
        }
        for (endpoint, answer) in std::mem::take(&mut self.gone) {
            self.pause(&endpoint, &answer).await;
        }
    }

    /// The receiver answered that it wants no more (410), or what the configuration takes for that.
    async fn pause(&mut self, endpoint: &str, answer: &str) {
        let by = format!("relay {}", self.plan.config.name);
        let why = format!("answered {answer}");
        let mandate = Mandate {
            by: Some(&by),
            why: Some(&why),
        };
        match self.stage.store.pause(endpoint, mandate).await {
            Ok(Some(true)) => tracing::error!(
                endpoint,
                answer,
                "paused for what it answered. Its messages are kept; go on with `outbox-relay resume {endpoint}`"
            ),
            Ok(Some(false) | None) => {}
            // The next 410 tries again.
            Err(error) => self.failed("pause", &error),
        }
    }
}
