//! What a session looks for, and when.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::Session;
use crate::{
    message::Lane,
    relay::{destination::Destination, lanes::next_discovery},
};

impl Session<'_> {
    /// Lists the lanes that hold rows.
    pub(super) async fn discover(&mut self) {
        let started = Instant::now();
        let found = match self.stage.store.discover().await {
            Ok(found) => found,
            Err(error) => return self.failed("discover", &error),
        };
        let now = Instant::now();
        self.next_discovery =
            next_discovery(now, self.plan.config.poll, now.duration_since(started));

        let (routed, unrouted): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|found| self.destinations.of(&found.lane).is_some());
        let unrouted: BTreeSet<Lane> = unrouted.into_iter().map(|found| found.lane).collect();
        for lane in unrouted.difference(self.stage.unrouted) {
            tracing::warn!(
                topic = lane.topic,
                "no route for this topic: its messages are kept until there is one"
            );
        }
        *self.stage.unrouted = unrouted;
        self.idle = !routed.iter().any(|found| {
            let due = found.ready || found.due.is_some_and(|due| due.is_zero());
            let closed = |to: &Destination| to.is_closed(now);
            due && !self.destinations.of(&found.lane).is_some_and(closed)
                && !self.lanes.is_closed(&found.lane)
        });
        let fresh = self.lanes.found(routed, now);
        if !fresh.is_empty()
            && let Err(error) = self.stage.store.add_lanes(&fresh).await
        {
            // Claims would find no lane to lock and say busy: the next skip scan finds them afresh.
            self.lanes.forget(&fresh);
            return self.failed("add_lanes", &error);
        }
        self.succeeded();
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
        let look = self.lanes.next_look(|lane| {
            let to = &self.destinations;
            to.room(lane, now).is_some() || to.needs_tokens(lane, now)
        });
        let opening = self.destinations.next_opening(now);
        [look, opening]
            .into_iter()
            .flatten()
            .fold(self.next_discovery.min(self.round.next()), Instant::min)
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
                Ok(done) if done.reaped => tracing::warn!(
                    dead.relay = %peer.relay, dead.name = %peer.name, messages = done.lost, dead_letters = done.dead,
                    "a relay has not renewed its leases for a whole lease time: its messages are due again"
                ),
                Ok(_) => {}
                Err(error) => self.failed("reap", &error),
            }
        }
    }
}
