//! One registration of a relay, from its first claim to its drain: the way of a row, top to bottom.

mod end;
mod look;
mod outage;

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use rand::{RngExt, rngs::StdRng};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Error, Relay, Summary,
    destination::{Desk, Destinations, Finished},
    lanes::Lanes,
    renewal::{Lifeline, Renewal},
};
use crate::{
    message::{Class, Lane, Reason, Settlement},
    store::{Claim, ClaimState, Registration, Settle, Store},
};

/// Rows of one key in one claim: more would wait in memory behind each other.
const CHAIN: i32 = 8;

/// So many claims between two settles, or finished outcomes would wait behind a thousand lanes.
const CLAIMS: usize = 8;

/// How a session ended.
pub(super) enum Ended {
    /// Stopped, or nothing is due any more and that was asked for.
    Done,
    /// This registration is void: register anew.
    Anew,
}

/// One registration.
pub(super) struct Session<'a> {
    relay: &'a Relay,
    store: &'a Store,
    rng: &'a mut StdRng,
    /// Topics without a route that were warned of.
    unrouted: &'a mut BTreeSet<Lane>,
    summary: &'a mut Summary,

    me: Registration,
    lanes: Lanes,
    destinations: Destinations<'a>,
    next_discovery: Instant,
    /// At the last skip scan no lane that can be delivered held anything due.
    idle: bool,

    desk: Desk,
    stopping: watch::Sender<bool>,
    inbox: mpsc::UnboundedReceiver<Finished>,
    tasks: JoinSet<()>,
    /// Cancelled when the renewal ended: this relay was reaped.
    reaped: CancellationToken,
    /// Waits to be settled, by lane endpoint.
    unsettled: HashMap<String, Vec<Settle>>,
    /// Refused by the database for what they hold, with their lane endpoints: tried again one by one.
    stuck: Vec<(String, Settle)>,
    stuck_until: Instant,
    /// Messages of each lease that are not yet settled.
    leases: HashMap<i64, usize>,
    /// A claim or its loading failed: the database may hold a lease that is not in `leases`.
    doubt: bool,
    /// No database call before this, after one that failed.
    retry_at: Option<Instant>,
    backoff: Duration,
}

impl<'a> Session<'a> {
    /// Registers, and starts the renewal.
    pub(super) async fn open(
        relay: &'a Relay,
        store: &'a Store,
        beats: &Store,
        rng: &'a mut StdRng,
        unrouted: &'a mut BTreeSet<Lane>,
        summary: &'a mut Summary,
    ) -> Result<Session<'a>, Error> {
        let config = &relay.config;
        let destinations = Destinations::new(&relay.endpoints, &relay.routes, config.memory)?;
        let sent = Instant::now();
        let me = store
            .register(&config.name, &relay.digest, config.lease)
            .await?;
        tracing::info!(relay = %me.relay, name = config.name, endpoints = relay.endpoints.len(), "registered");

        let (until, lifeline) = Lifeline::new(sent, config.lease);
        let (stopping, stopped) = watch::channel(false);
        let (finished, inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let renewal = Renewal {
            store: beats.clone(),
            relay: me.relay,
            lease: config.lease,
            max_lost: config.max_lost,
            lifeline: until,
        };
        let reaped = CancellationToken::new();
        tasks.spawn(renewal.run(reaped.clone()));
        Ok(Session {
            relay,
            store,
            rng,
            unrouted,
            summary,
            me,
            lanes: Lanes::new(config.poll),
            destinations,
            next_discovery: sent,
            idle: false,
            desk: Desk {
                finished,
                lifeline,
                stopping: stopped,
            },
            stopping,
            inbox,
            tasks,
            reaped,
            unsettled: HashMap::new(),
            stuck: Vec::new(),
            stuck_until: sent,
            leases: HashMap::new(),
            doubt: false,
            retry_at: None,
            backoff: Duration::ZERO,
        })
    }

    /// The loop. Returns when it was stopped and drained, or when its registration is void.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Ended {
        let reaped = self.reaped.clone();
        loop {
            if stop.is_cancelled() {
                return self.drain().await;
            }
            if self.relay.until_empty && self.idle && self.leases.is_empty() {
                return self.drain().await;
            }
            if self.may_call()
                && let Err(ended) = self.turn().await
            {
                return ended;
            }
            let wake = self.wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = reaped.cancelled() => return self.give_up().await,
                Some(finished) = self.inbox.recv() => self.take(finished),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// One turn: settle, look around, claim.
    async fn turn(&mut self) -> Result<(), Ended> {
        self.collect();
        self.settle().await;
        self.settle_stuck().await;
        if self.doubt && self.may_call() {
            self.recover().await?;
        }
        if Instant::now() >= self.next_discovery && self.may_call() {
            self.discover().await;
        }
        for _ in 0..CLAIMS {
            if !self.may_call() || self.doubt || !self.desk.lifeline.may_start() {
                break;
            }
            let now = Instant::now();
            let Some(lane) = self
                .lanes
                .next(now, |lane| self.destinations.room(lane).is_some())
            else {
                break;
            };
            self.claim(&lane).await?;
        }
        Ok(())
    }

    // === one row's way: claim → deliver → decide → settle ===

    /// Takes what is due in a lane, and starts its requests.
    async fn claim(&mut self, lane: &Lane) -> Result<(), Ended> {
        let Some((name, messages, bytes)) = self.destinations.room(lane) else {
            return Ok(());
        };
        let limit = messages.clamp(1, self.relay.config.batch);
        let started = Instant::now();
        let (floors, sweep) = self.lanes.floors(lane, started);
        let claim = Claim {
            lane,
            endpoint: &name,
            in_order: false,
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            chain: CHAIN,
            floors,
            open_keys: &[],
        };
        let claimed = match self.store.claim(&self.me, &claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.doubt = true;
                self.failed("claim", &error);
                return Ok(());
            }
        };
        self.succeeded();
        let now = Instant::now();
        let jitter = self.rng.random();
        self.lanes.claimed(
            lane,
            &claimed,
            sweep,
            now.duration_since(started),
            now,
            jitter,
        );
        match claimed.state {
            ClaimState::RelayGone | ClaimState::OtherSession | ClaimState::OtherEpoch => {
                tracing::error!(relay = %self.me.relay, state = ?claimed.state, "this registration is void: registering anew");
                return Err(self.give_up().await);
            }
            ClaimState::Paused => {
                let to = |lane: &Lane| self.destinations.name(lane);
                self.lanes.pause_with(lane, |other| to(other) == to(lane));
            }
            ClaimState::Claimed | ClaimState::Empty | ClaimState::Busy | ClaimState::NotBefore => {}
        }
        let Some(lease) = claimed.lease else {
            return Ok(());
        };
        let deliveries = match self.store.load(&lease).await {
            Ok(deliveries) => deliveries,
            Err(error) => {
                self.doubt = true;
                self.failed("load", &error);
                return Ok(());
            }
        };
        self.leases.insert(lease.id, lease.ids.len());
        for id in &lease.ids {
            if !deliveries.iter().any(|delivery| delivery.id == *id) {
                // Its row is gone; its place in the lease must go too, or it would close its key for ever.
                self.put(
                    &lease.lane.endpoint,
                    Settle {
                        lease: lease.id,
                        id: *id,
                        generation: 0,
                        endpoint: name.clone(),
                        settlement: Settlement::Release,
                        hold: false,
                        attempt: 0,
                        outcome: None,
                        started: now,
                    },
                );
            }
        }
        if let Some(destination) = self.destinations.get_mut(&name) {
            destination.start(deliveries, &self.desk, &mut self.tasks);
        }
        Ok(())
    }

    /// Decides what follows from a finished delivery.
    fn take(&mut self, finished: Finished) {
        let Finished {
            endpoint,
            mut delivery,
            loaded,
            started,
            outcome,
        } = finished;
        let Some(destination) = self.destinations.get_mut(&endpoint) else {
            return;
        };
        destination.release(&delivery);
        let now = Instant::now();
        let waited = now.duration_since(loaded);
        delivery.age = delivery.age.saturating_add(waited);
        delivery.expires_in = delivery.expires_in.map(|left| left.saturating_sub(waited));
        let settlement = match &outcome {
            Some(outcome) => destination
                .endpoint
                .retry
                .settle(&delivery, outcome, self.rng),
            None if delivery.expires_in.is_some_and(|left| left.is_zero()) => {
                Settlement::Dead(Reason::Expired)
            }
            None => Settlement::Release,
        };
        let attempt = delivery.attempt();
        if let Some(outcome) = &outcome {
            tell(&endpoint, &delivery, outcome, &settlement);
        }
        match settlement {
            Settlement::Delivered => self.summary.delivered += 1,
            Settlement::Retry(delay) => {
                self.summary.retried += 1;
                let lane = Lane {
                    topic: delivery.topic,
                    endpoint: delivery.lane_endpoint.clone(),
                };
                self.lanes.due_in(&lane, delay, now);
            }
            Settlement::Dead(_) => self.summary.dead += 1,
            Settlement::Release => {}
        }
        let lane_endpoint = delivery.lane_endpoint;
        self.put(
            &lane_endpoint,
            Settle {
                lease: delivery.lease,
                id: delivery.id,
                generation: delivery.generation,
                endpoint,
                settlement,
                hold: false,
                attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
                outcome,
                started: started.unwrap_or(now),
            },
        );
    }

    fn put(&mut self, lane_endpoint: &str, settle: Settle) {
        self.unsettled
            .entry(lane_endpoint.to_owned())
            .or_default()
            .push(settle);
    }

    /// Takes in all that has finished by now.
    fn collect(&mut self) {
        while let Ok(finished) = self.inbox.try_recv() {
            self.take(finished);
        }
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a task panicked; its message is tried again, its neighbours go on");
            }
        }
    }

    /// Settles all that has finished. What fails stays for the next turn.
    async fn settle(&mut self) {
        let endpoints: Vec<String> = self.unsettled.keys().cloned().collect();
        for lane_endpoint in endpoints {
            let Some(batch) = self.unsettled.remove(&lane_endpoint) else {
                continue;
            };
            if let Err(rest) = self.settle_batch(&lane_endpoint, batch).await {
                self.unsettled
                    .entry(lane_endpoint)
                    .or_default()
                    .extend(rest);
                return;
            }
        }
    }

    async fn settle_once(
        &mut self,
        lane_endpoint: &str,
        batch: &[Settle],
    ) -> Result<(), crate::store::Error> {
        let name = &self.relay.config.name;
        let report = self
            .store
            .settle(&self.me, name, lane_endpoint, batch, self.relay.archive)
            .await?;
        self.succeeded();
        if let Some(error) = report.history_error {
            tracing::error!(
                error,
                messages = batch.len(),
                "history and archive could not be written; the messages are settled"
            );
        }
        let settled: BTreeSet<_> = report.settled.into_iter().collect();
        for settle in batch {
            if let Some(left) = self.leases.get_mut(&settle.lease) {
                *left -= 1;
                if *left == 0 {
                    self.leases.remove(&settle.lease);
                }
            }
            if !settled.contains(&settle.id) && settle.settlement != Settlement::Release {
                tracing::warn!(
                    message.id = %settle.id, settlement = settle.settlement.as_str(),
                    "this result came too late: the message is no longer ours, or gone"
                );
            }
        }
        let gone: BTreeSet<&str> = batch
            .iter()
            .filter(|settle| {
                settle
                    .outcome
                    .as_ref()
                    .is_some_and(|outcome| outcome.class == Class::Gone)
            })
            .map(|settle| &*settle.endpoint)
            .collect();
        for endpoint in gone {
            self.pause(endpoint).await;
        }
        Ok(())
    }

    /// The receiver answered 410: it wants no more.
    async fn pause(&mut self, endpoint: &str) {
        let by = format!("relay {}", self.relay.config.name);
        match self.store.pause(endpoint, "answered 410 Gone", &by).await {
            Ok(true) => tracing::error!(
                endpoint,
                "paused: it answered 410 Gone. Its messages are kept; go on with `outbox-relay resume {endpoint}`"
            ),
            Ok(false) => {}
            // The next 410 tries again.
            Err(error) => self.failed("pause", &error),
        }
    }
}

/// One line per attempt that failed.
fn tell(
    endpoint: &str,
    delivery: &crate::message::Delivery,
    outcome: &crate::message::Outcome,
    settlement: &Settlement,
) {
    let error = outcome.error.as_deref().unwrap_or_default();
    let (id, topic, attempt) = (delivery.id, &delivery.topic, delivery.attempt());
    match settlement {
        Settlement::Delivered | Settlement::Release => {
            tracing::debug!(message.id = %id, topic, endpoint, attempt, duration = ?outcome.duration, "delivered");
        }
        Settlement::Retry(delay) => tracing::warn!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, retry_in = ?delay, "delivery failed"
        ),
        Settlement::Dead(reason) => tracing::error!(
            message.id = %id, topic, endpoint, attempt, outcome = %outcome.class, error, reason = %reason, "given up: dead letter"
        ),
    }
}
