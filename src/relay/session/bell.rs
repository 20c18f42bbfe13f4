//! When a session sleeps, and what it does when it is woken. Who wakes it, and how: `relay/doorbell.rs`.

use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

use super::{Session, Void};
use crate::{
    relay::{
        doorbell::{Doorbell, Heard, Order, Pace, Stage},
        lanes,
    },
    store,
};

/// While another relay keeps the bell this one looks so often, for what that one does not take.
const OTHERS: Duration = Duration::from_secs(1);

/// How the bell stands is looked at so often, with a skip scan that is made anyway.
const LOOK: Duration = Duration::from_millis(800);

/// What a session knows of the bell.
pub(super) struct Ear {
    pub(super) doorbell: Doorbell,
    pace: Pace,
    /// How it stood at the last look.
    known: Option<store::Doorbell>,
    next_look: Instant,
    /// It rang, and no lane was asked yet.
    rung: bool,
    /// It rang at this moment, and no skip scan was made yet.
    unseen: Option<Instant>,
    /// No skip scan for a ring before this, or they would take more than their share of the time.
    scan_at: Instant,
    /// Messages were given back for other relays to take.
    pub(super) given_back: bool,
}

impl Ear {
    pub(super) fn new(doorbell: Doorbell, now: Instant) -> Ear {
        Ear {
            doorbell,
            pace: Pace::new(now),
            known: None,
            next_look: now,
            rung: false,
            unseen: None,
            scan_at: now,
            given_back: false,
        }
    }

    /// Whether the next skip scan is to look at the bell, too.
    pub(super) fn looks(&mut self, now: Instant) -> bool {
        let looks = now >= self.next_look;
        if looks {
            self.next_look = now + LOOK;
        }
        looks
    }

    /// So many messages were claimed.
    pub(super) fn claimed(&mut self, messages: usize, now: Instant) {
        self.pace.claimed(messages, now);
    }

    /// The ring that a skip scan is made for, if it is.
    pub(super) fn take_unseen(&mut self) -> Option<Instant> {
        self.unseen.take()
    }

    /// The skip scan failed: it is still to be made.
    pub(super) fn still_unseen(&mut self, rung: Option<Instant>) {
        self.unseen = self.unseen.or(rung);
    }

    /// A skip scan took so long.
    pub(super) fn scanned(&mut self, cost: Duration, poll: Duration, now: Instant) {
        self.scan_at = now + lanes::pause_after(cost).min(poll);
    }

    /// Whether a ring asks for a skip scan now.
    fn scans(&self, now: Instant) -> bool {
        self.unseen.is_some() && now >= self.scan_at
    }

    /// When there is something to do for the bell.
    pub(super) fn wake(&self, now: Instant) -> Option<Instant> {
        let scan = self.unseen.map(|_| self.scan_at);
        let keeps = self.doorbell.stage() == Stage::Awake;
        let sleep = self.pace.next().filter(|at| keeps && *at > now);
        scan.into_iter().chain(sleep).min()
    }
}

impl Session<'_> {
    /// Whether inserts wake this relay.
    pub(super) fn is_asleep(&self) -> bool {
        self.ear.doorbell.stage() >= Stage::Queued
    }

    /// Takes in what was heard.
    pub(super) fn heard(&mut self, heard: Heard) {
        let now = Instant::now();
        match heard {
            Heard::Rings(count) => {
                self.stage.metrics.rang(count);
                self.ear.pace.rung(count, now);
            }
            Heard::Stage(Stage::Off | Stage::Awake) => {
                self.lanes.set_asleep(false);
                self.next_discovery = now;
                return;
            }
            // From here on, and up to here, nothing is missed if everything is looked at now.
            Heard::Stage(Stage::Queued | Stage::Armed) => {
                self.lanes.set_asleep(true);
                self.ear.scan_at = now;
            }
        }
        self.ear.rung = true;
        self.ear.unseen = Some(now);
    }

    /// Looks around if it is time for that, and claims. After a ring: first where something came from lately.
    pub(super) async fn look_and_claim(&mut self) -> Result<(), Void> {
        let now = Instant::now();
        if std::mem::take(&mut self.ear.rung) && self.lanes.ring(now) {
            self.claims().await?;
        }
        let now = Instant::now();
        if (now >= self.next_discovery || self.ear.scans(now)) && self.may_call() {
            self.discover().await;
        }
        self.tend_sagas().await;
        self.expire().await;
        // After the look around: what it found is due now.
        self.take_all_tokens().await;
        self.claims().await?;
        self.decide_on_sleep();
        Ok(())
    }

    /// Takes in how the bell stands.
    pub(super) fn looked_at_bell(&mut self, doorbell: store::Doorbell) {
        self.ear.known = Some(doorbell);
        let off = self.ear.doorbell.stage() == Stage::Off;
        if self.may_keep() && off && (!doorbell.kept || doorbell.stray) {
            self.ear.doorbell.vacant(doorbell.relays);
        }
    }

    /// How long nothing is looked for, if nobody rings.
    pub(super) fn poll(&mut self) -> Duration {
        let poll = self.plan.config.poll;
        if self.is_asleep() {
            return self.plan.config.idle.max(poll);
        }
        let off = self.ear.doorbell.stage() == Stage::Off;
        let kept = self.ear.known.is_some_and(|known| known.kept);
        if self.may_keep() && off && kept {
            // Fifty relays must not come together.
            let jitter = self.stage.rng.random_range(0.75..1.25);
            return OTHERS.mul_f64(jitter).max(poll);
        }
        poll
    }

    /// Something was given back: somebody may take it soon.
    pub(super) fn look_soon(&mut self) {
        let soon = Instant::now() + self.plan.config.poll;
        self.next_discovery = self.next_discovery.min(soon);
    }

    /// Wakes the relay that sleeps, where this one has given back what it will not take again.
    pub(super) async fn ring(&mut self) {
        let off = self.ear.doorbell.stage() == Stage::Off;
        let kept = self.ear.known.is_some_and(|known| known.kept);
        if !std::mem::take(&mut self.ear.given_back) || !off || !kept {
            return;
        }
        if let Err(error) = self.stage.store.ring().await {
            // It looks by itself, a little later.
            tracing::debug!(%error, "could not ring the doorbell");
        }
    }

    /// Whether this relay may rely on the bell. A job ends when nothing is due: it does not sleep.
    fn may_keep(&self) -> bool {
        let hangs = self.ear.known.is_some_and(|known| known.hangs);
        hangs && self.plan.config.doorbell && !self.stage.until_empty
    }

    fn decide_on_sleep(&mut self) {
        if !self.may_keep() {
            return self.ear.doorbell.order(Order::Leave);
        }
        let now = Instant::now();
        let look = self
            .lanes
            .next_look(|lanes, lane| self.destinations.fits(lanes, lane, now));
        let dry = look.is_none_or(|look| look > now);
        let order = match self.ear.pace.sleeps(dry, now) {
            true => Order::Sleep,
            false => Order::Awake,
        };
        self.ear.doorbell.order(order);
    }
}
