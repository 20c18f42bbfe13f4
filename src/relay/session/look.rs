//! What a session looks for, and when.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::Session;
use crate::{
    message::Lane,
    relay::{
        crash::{self, Point},
        lanes::next_discovery,
    },
    route::Order,
    store::{Seen, Way},
};

/// So many lanes without a route are told of by name.
const SHOWN: usize = 1000;

impl Session<'_> {
    /// Lists the lanes that hold rows.
    pub(super) async fn discover(&mut self) {
        let started = Instant::now();
        let rung = self.ear.take_unseen();
        let looks = self.ear.looks(started);
        let plans = self.plan.sagas();
        let seen = self.stage.store.look_around(looks, &plans).await;
        let Seen {
            lanes: found,
            bell,
            sagas,
        } = match seen {
            Ok(seen) => seen,
            Err(error) => {
                self.ear.still_unseen(rung);
                return self.failed("discover", &error);
            }
        };
        let now = Instant::now();
        let cost = now.duration_since(started);
        if let Some(bell) = bell {
            self.looked_at_bell(bell);
        }
        self.next_saga = sagas.map(|due| now + due);
        self.ear.scanned(cost, self.plan.config.poll, now);
        self.next_discovery = next_discovery(now, self.poll(), cost);

        let (routed, unrouted): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|found| self.destinations.of(&found.lane).is_some());
        let unrouted: BTreeSet<Lane> = unrouted.into_iter().map(|found| found.lane).collect();
        for lane in unrouted.difference(self.stage.unrouted) {
            if self.destinations.has_route(lane) {
                tracing::warn!(
                    topic = lane.topic,
                    endpoint = lane.endpoint,
                    "there is no such endpoint any more: its messages are kept until there is"
                );
            } else {
                tracing::warn!(
                    topic = lane.topic,
                    "no route for this topic: its messages are kept until there is one"
                );
            }
        }
        self.untold |= unrouted != *self.stage.unrouted;
        *self.stage.unrouted = unrouted;
        self.tell_unrouted().await;
        self.idle = !routed.iter().any(|found| {
            let due = found.ready || found.due.is_some_and(|due| due.is_zero());
            due && !self.destinations.is_closed(&found.lane, now)
                && !self.lanes.is_closed(&found.lane)
        });
        self.idle &= self.next_saga.is_none_or(|at| at > now);
        let fresh = self.lanes.found(routed, rung, now);
        if !fresh.is_empty()
            && let Err(error) = self.stage.store.add_lanes(&self.ways(&fresh)).await
        {
            // Claims would find no lane to lock and say busy: the next skip scan finds them afresh.
            self.lanes.forget(&fresh);
            return self.failed("add_lanes", &error);
        }
        self.succeeded();
    }

    /// Where lanes lead, as this relay would have it.
    fn ways(&self, lanes: &[Lane]) -> Vec<Way> {
        let way = |lane: &Lane| Way {
            lane: lane.clone(),
            leads_to: self.destinations.names(lane),
            in_order: self.destinations.order(lane) != Order::None,
        };
        lanes.iter().map(way).collect()
    }

    /// Tells the database what this relay can't deliver, for `status`.
    async fn tell_unrouted(&mut self) {
        if !self.untold {
            return;
        }
        // For people: a list that is longer is as good as this one.
        let lanes: BTreeSet<Lane> = self.stage.unrouted.iter().take(SHOWN).cloned().collect();
        match self.stage.store.set_unrouted(self.me.relay, &lanes).await {
            Ok(()) => self.untold = false,
            Err(error) => self.failed("set_unrouted", &error),
        }
    }

    /// When there is something to do next, if nothing finishes before.
    pub(super) fn wake(&self) -> Instant {
        let now = Instant::now();
        // A moment that is past has had its turn: it found nothing to call for.
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return at;
        }
        if !self.desk.lifeline.may_start() {
            // The renewal is late; what it needs is time.
            return now + self.plan.config.lease / 20;
        }
        let look = self.lanes.next_look(|lanes, lane| {
            let to = &self.destinations;
            to.fits(lanes, lane, now) || to.needs_tokens(lane, now)
        });
        let opening = self.destinations.next_opening(now);
        // However long nothing is looked for: what is told now and then, and who died, waits no longer than a poll.
        let turn = now + self.plan.config.poll;
        // One that is due and was not tended waits for something: the next skip scan tells of it again.
        let saga = self.next_saga.filter(|at| *at > now);
        [look, opening, self.ear.wake(now), saga]
            .into_iter()
            .flatten()
            .fold(
                self.next_discovery.min(self.round.next()).min(turn),
                Instant::min,
            )
    }

    /// Takes the messages of relays that are dead. What fails is seen again at the next beat.
    pub(super) async fn reap(&mut self) {
        let mut reaped = BTreeSet::new();
        while let Ok(peer) = self.dead.try_recv() {
            if !self.may_call() || !reaped.insert(peer.relay) {
                continue;
            }
            match self
                .stage
                .store
                .reap(peer.relay, peer.beat, self.plan.config.max_lost)
                .await
            {
                Ok(done) if done.reaped => {
                    crash::point(Point::Reaped);
                    self.stage.metrics.reaped(done.lost + done.dead);
                    self.next_discovery = Instant::now();
                    tracing::warn!(
                        dead.relay = %peer.relay, dead.name = %peer.name, messages = done.lost, dead_letters = done.dead,
                        "a relay has not renewed its leases for a whole lease time: its messages are due again"
                    );
                }
                Ok(_) => {}
                Err(error) => self.failed("reap", &error),
            }
        }
    }
}
