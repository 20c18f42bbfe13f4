//! One registration of a relay, from its first claim to its drain: the way of a row, top to bottom.

mod bell;
mod end;
mod expand;
mod expire;
mod log;
mod look;
mod oldest;
mod outage;
mod put_off;
mod reload;
mod sagas;
mod settle;
mod shared;
mod take;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use rand::{RngExt, rngs::StdRng};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub(super) use self::oldest::PATIENCE as CURIOSITY;
use self::{bell::Ear, expire::Round, put_off::PutOff};
use super::{
    Error, Plan, Summary,
    crash::{self, Point},
    destination::{Bound, Desk, Destinations, Finished},
    doorbell::Doorbell,
    lanes::{Lanes, Start},
    renewal::{Lifeline, Renewal},
    tracer::Tracer,
    vitals::Vitals,
};
use crate::{
    message::{Delivery, Lane, Settlement},
    metrics::Metrics,
    store::{Claim, ClaimState, Peer, Registration, Settle, Store, Waiting},
};

/// Rows of one key in one claim: more would wait in memory behind each other.
const CHAIN: i32 = 8;

/// So many claims between two settles, or finished outcomes would wait behind a thousand lanes.
const CLAIMS: usize = 8;

/// An endpoint that is paused is asked again so often.
const PAUSED: Duration = Duration::from_secs(1);

/// One that is closed for longer is asked again after this: the database knows whether somebody has opened it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How a session ended.
pub(super) enum Ended {
    /// Stopped, or nothing is due any more and that was asked for.
    Done,
    /// This registration is void: register anew.
    Anew,
}

/// This registration is void: what is remembered of it holds no more.
pub(super) struct Void;

/// What a session works with and leaves to the next one.
pub(super) struct Stage<'a> {
    pub(super) store: &'a Store,
    /// For what has finished.
    pub(super) settles: &'a Store,
    /// For the beats only.
    pub(super) beats: &'a Store,
    /// For what is asked out of curiosity.
    pub(super) looks: &'a Store,
    pub(super) rng: &'a mut StdRng,
    pub(super) plans: &'a mut watch::Receiver<Arc<Plan>>,
    /// Topics without a route that were warned of.
    pub(super) unrouted: &'a mut BTreeSet<Lane>,
    pub(super) vitals: &'a Vitals,
    pub(super) metrics: &'a Metrics,
    pub(super) tracer: &'a Tracer,
    pub(super) summary: &'a mut Summary,
    /// End as soon as nothing is due.
    pub(super) until_empty: bool,
}

/// One registration.
pub(super) struct Session<'a> {
    stage: Stage<'a>,
    /// What it delivers by.
    plan: Arc<Plan>,
    /// The database does not know of the plan yet.
    unannounced: bool,
    /// ... nor of the lanes that this relay can't deliver.
    untold: bool,

    me: Registration,
    lanes: Lanes,
    destinations: Destinations,
    next_discovery: Instant,
    /// When to look for the oldest message that is due.
    next_oldest: Instant,
    /// When to say next how many messages are held.
    next_count: Instant,
    offered: watch::Sender<Vec<Waiting>>,
    /// How far the search for messages whose time is over has got.
    round: Round,
    /// What it knows of the doorbell.
    ear: Ear,
    /// At the last skip scan no lane that can be delivered held anything due.
    idle: bool,
    /// When a saga can begin, or is to go back; `None` = none, as far as is known.
    next_saga: Option<Instant>,

    desk: Desk,
    stopping: watch::Sender<bool>,
    inbox: mpsc::UnboundedReceiver<Box<Finished>>,
    /// Relays that the renewal has seen to be dead.
    dead: mpsc::UnboundedReceiver<Peer>,
    tasks: JoinSet<()>,
    /// Cancelled when the renewal ended: this relay was reaped.
    reaped: CancellationToken,
    /// Waits to be settled, by lane endpoint.
    unsettled: HashMap<String, Vec<Settle>>,
    /// Refused by the database for what they hold: tried again one by one.
    stuck: Vec<Settle>,
    stuck_until: Instant,
    /// Endpoints that asked to be left alone until then, and when the other relays were told.
    put_off: HashMap<Arc<str>, PutOff>,
    /// Endpoints to be paused with the next settle, and what they answered.
    gone: HashMap<Arc<str>, String>,
    /// Messages of each lease that are not yet settled.
    leases: HashMap<i64, usize>,
    /// A claim or its loading failed: the database may hold a lease that is not in `leases`.
    doubt: bool,
    /// No database call before this, after one that failed.
    retry_at: Option<Instant>,
    /// The server can't be written to, which has been said.
    on_standby: bool,
    backoff: Duration,
}

impl<'a> Session<'a> {
    /// Registers, and starts the renewal.
    pub(super) async fn open(stage: Stage<'a>) -> Result<Session<'a>, Error> {
        let plan = stage.plans.borrow_and_update().clone();
        let config = &plan.config;
        stage.store.add_endpoints(&plan.timeouts()).await?;
        let destinations = Destinations::new(&plan);
        let sent = Instant::now();
        let me = stage
            .store
            .register(&config.name, &plan.digest, config.lease)
            .await?;
        crash::point(Point::Registered);
        tracing::info!(relay = %me.relay, name = config.name, endpoints = plan.endpoints.len(), "registered");

        let total = Arc::new(Semaphore::new(config.concurrency));
        let (until, lifeline) = Lifeline::new(sent, config.lease);
        let (stopping, stopped) = watch::channel(false);
        let (finished, inbox) = mpsc::unbounded_channel();
        let (dead_sender, dead) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let renewal = Renewal {
            store: stage.beats.clone(),
            relay: me.relay,
            lease: config.lease,
            lifeline: until,
            dead: dead_sender,
        };
        let reaped = CancellationToken::new();
        tasks.spawn(renewal.run(reaped.clone()));
        stage.vitals.registered(lifeline.clone());
        stage.vitals.plan(config.poll, config.max_due_age);
        let (tracer, metrics) = (stage.tracer.clone(), stage.metrics.clone());
        let (offered, lanes_to_watch) = watch::channel(Vec::new());
        tasks.spawn(oldest::look(
            stage.looks.clone(),
            lanes_to_watch,
            stage.vitals.clone(),
        ));
        let doorbell = Doorbell::start(stage.store, me.relay, stage.rng, &mut tasks);
        Ok(Session {
            lanes: Lanes::new(config.poll),
            // They were found in an earlier registration.
            untold: !stage.unrouted.is_empty(),
            stage,
            plan,
            unannounced: false,
            me,
            destinations,
            next_discovery: sent,
            next_oldest: sent,
            next_count: sent,
            offered,
            round: Round::new(sent),
            ear: Ear::new(doorbell, sent),
            idle: false,
            next_saga: None,
            desk: Desk {
                finished,
                total,
                lifeline,
                stopping: stopped,
                tracer,
                metrics,
            },
            stopping,
            inbox,
            dead,
            tasks,
            reaped,
            unsettled: HashMap::new(),
            stuck: Vec::new(),
            stuck_until: sent,
            put_off: HashMap::new(),
            gone: HashMap::new(),
            leases: HashMap::new(),
            doubt: false,
            retry_at: None,
            on_standby: false,
            backoff: Duration::ZERO,
        })
    }

    /// The loop. Returns when it was stopped and drained, or when its registration is void.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Ended {
        let reaped = self.reaped.clone();
        loop {
            let now = Instant::now();
            self.stage.vitals.turned(now);
            self.offer_lanes(now);
            self.count_held(now);
            if stop.is_cancelled() {
                return self.drain().await;
            }
            if self.stage.until_empty && self.idle && !self.unfinished() {
                return self.drain().await;
            }
            if self.may_call()
                && let Err(Void) = self.turn().await
            {
                return self.give_up().await;
            }
            let wake = self.wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = reaped.cancelled() => return self.give_up().await,
                // Under load there is always something that has finished.
                Ok(()) = self.stage.plans.changed() => self.adopt(),
                heard = self.ear.doorbell.hear() => self.heard(heard),
                Some(finished) = self.inbox.recv() => self.take(finished),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// One turn: settle, look around, claim. What opens no key is settled beside the rest, on a connection of its own: the
    /// claims need not wait for its commit.
    async fn turn(&mut self) -> Result<(), Void> {
        self.collect();
        self.destinations.drop_empty();
        self.announce().await;
        let beside = self.beside();
        self.settle().await;
        let (beside, ended) = tokio::join!(biased; beside.run(), self.look());
        self.settled_beside(beside).await;
        ended
    }

    /// What a turn does beside its settles.
    async fn look(&mut self) -> Result<(), Void> {
        self.settle_stuck().await;
        self.tell_put_off().await;
        self.report_all().await;
        if self.doubt && self.may_call() {
            self.recover().await?;
        }
        self.reap().await;
        self.look_and_claim().await
    }

    /// Claims wherever something may be, up to a point.
    async fn claims(&mut self) -> Result<(), Void> {
        for _ in 0..CLAIMS {
            if !self.may_call() || self.doubt || !self.desk.lifeline.may_start() {
                break;
            }
            let now = Instant::now();
            let Some(lane) = self
                .lanes
                .next(now, |lanes, lane| self.destinations.fits(lanes, lane, now))
            else {
                break;
            };
            match self.destinations.of(&lane) {
                Some(Bound::Several(_)) => self.expand(&lane).await?,
                Some(Bound::One(_)) | None => self.claim(&lane).await?,
            }
        }
        Ok(())
    }

    // === one row's way: claim → deliver → decide → settle ===

    /// Takes what is due in a lane, and starts its requests.
    async fn claim(&mut self, lane: &Lane) -> Result<(), Void> {
        let started = Instant::now();
        let Some((name, messages, bytes)) = self.destinations.room(lane, started) else {
            return Ok(());
        };
        let order = self.destinations.order(lane);
        let retry = self.destinations.retry(lane);
        let limit = messages.clamp(1, self.plan.config.batch);
        let to = self.destinations.get(&name);
        // Of a batch each message may fail by itself, and what is behind it under its key must not have been sent.
        let chain = match to.is_some_and(|to| to.endpoint.batch.is_some()) {
            true => 1,
            false => CHAIN,
        };
        let shared = to.map(|to| to.bearing.shared()).unwrap_or_default();
        let Start {
            floors,
            sweep,
            open_keys,
        } = self.lanes.start(lane, limit, started);
        let claim = Claim {
            lane,
            endpoint: &name,
            in_order: order.is_by_key(),
            hold: order.holds(),
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            chain,
            floors,
            open_keys: &open_keys,
            shared,
        };
        crash::point(Point::Claim);
        let mut claimed = match self.stage.store.claim(&self.me, &claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.lanes.put_back(lane, open_keys);
                self.doubt = true;
                self.claim_failed("claim", &error);
                return Ok(());
            }
        };
        crash::point(Point::Claimed);
        self.succeeded();
        self.stage.vitals.answered("claim");
        let locked = claimed.state == ClaimState::Busy;
        let now = Instant::now();
        self.stage.vitals.claimed(lane, locked, now);
        let jitter = self.stage.rng.random();
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
                return Err(self.void(claimed.state));
            }
            ClaimState::Paused => self.close(&name, now + PAUSED.mul_f64(0.5 + jitter), true),
            ClaimState::NotBefore | ClaimState::Open => {
                let wait = claimed.next_due.unwrap_or(PAUSED).min(LONGEST_WAIT);
                self.close(&name, now + wait, false);
            }
            ClaimState::Saturated => {
                if let Some(destination) = self.destinations.get_mut(&name) {
                    destination
                        .saturated_until(now + self.plan.config.poll.mul_f64(0.25 + jitter / 4.0));
                }
            }
            ClaimState::Missing => {
                // Somebody removed the row of the lane or the endpoint: both are made again.
                self.look_anew(lane, now);
                if let Err(error) = self.stage.store.add_endpoints(&self.plan.timeouts()).await {
                    self.failed("add_endpoints", &error);
                }
            }
            ClaimState::Claimed | ClaimState::Empty | ClaimState::Busy => {
                if let Some(destination) = self.destinations.get_mut(&name) {
                    destination.opened();
                }
            }
        }
        let looked = matches!(claimed.state, ClaimState::Claimed | ClaimState::Empty);
        // Keys that nobody has asked for yet are asked for by the next claim.
        let left = match looked {
            true => std::mem::take(&mut claimed.left_keys),
            false => open_keys,
        };
        self.lanes.put_back(lane, left);
        let taken = claimed.lease.as_ref().map_or(0, |lease| lease.ids.len());
        let took = now.duration_since(started);
        let state = claimed.state.as_str();
        self.stage.metrics.claim(state, taken, took);
        self.ear.claimed(taken, now);
        if let Some(destination) = self.destinations.get_mut(&name) {
            destination
                .bearing
                .claimed(taken, claimed.breaker, claimed.endpoint_floor, now);
        }
        let Some(lease) = claimed.lease else {
            return Ok(());
        };
        let deliveries = claimed.deliveries;
        self.leases.insert(lease.id, lease.ids.len());
        if deliveries.len() < lease.ids.len() {
            let there: BTreeSet<_> = deliveries.iter().map(|delivery| delivery.id).collect();
            for id in lease.ids.iter().filter(|id| !there.contains(id)) {
                // Its row is gone; its place in the lease must go too, or it would close its key for ever.
                self.put(Settle {
                    lease: lease.id,
                    id: *id,
                    seq: 0,
                    generation: 0,
                    lane: lease.lane.clone(),
                    key: None,
                    endpoint: name.clone(),
                    settlement: Settlement::Release,
                    hold: false,
                    attempt: 0,
                    outcome: None,
                    started: now,
                });
            }
        }
        let named = |delivery: &Delivery| {
            let step = delivery.step.as_deref()?;
            Some((delivery.id, self.destinations.retry_of_step(step)?))
        };
        let of_step: HashMap<_, _> = deliveries.iter().filter_map(named).collect();
        let retry = |delivery: &Delivery| of_step.get(&delivery.id).or(retry.as_ref()).cloned();
        if let Some(destination) = self.destinations.get_mut(&name) {
            destination.start(deliveries, order, retry, &self.desk, &mut self.tasks);
            crash::point(Point::Started);
        }
        Ok(())
    }
}
