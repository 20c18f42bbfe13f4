//! Messages whose time is over and that no claim meets: their endpoint is paused or closed, or their topic has no route.
//!
//! Any relay looks for them, in rounds from the first time to the last, a few at a time and with long pauses. Where no row
//! expires, a round is one look into an empty index.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::time::Instant;
use uuid::Uuid;

use super::Session;
use crate::{
    message::Lane,
    relay::{
        crash::{self, Point},
        destination::Bound,
        lanes::next_discovery,
    },
    store::{Error, Place},
};

/// From the end of a round to the next one. After rounds that found nothing it grows to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(12);

/// Messages that are looked for at once, and that one transaction may give up.
const WINDOW: i32 = 100;

/// So many lanes in one turn of the loop.
const LANES: usize = 8;

/// Where a round has got to.
#[derive(Debug)]
pub(super) struct Round {
    next: Instant,
    pause: Duration,
    place: Place,
    /// Seen and not yet dealt with.
    left: VecDeque<(Lane, Vec<Uuid>)>,
}

impl Round {
    pub(super) fn new(now: Instant) -> Round {
        Round {
            next: now,
            pause: PAUSE,
            place: Place::default(),
            left: VecDeque::new(),
        }
    }

    /// When there is something to do for it.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
}

impl Session<'_> {
    /// Goes on with the round, if it is time for that.
    pub(super) async fn expire(&mut self) {
        let started = Instant::now();
        if started < self.round.next || !self.may_call() {
            return;
        }
        let pause = self
            .round
            .pause
            .mul_f64(self.stage.rng.random_range(0.75..1.25));
        self.round.next = started + pause;
        if self.round.left.is_empty() {
            match self.stage.store.expired(self.round.place, WINDOW).await {
                Ok(expired) => {
                    self.succeeded();
                    self.round.place = expired.next.unwrap_or_default();
                    self.round.left = expired.lanes.into();
                    self.round.pause = match self.round.left.is_empty() {
                        true => (self.round.pause * 2).min(LONGEST_PAUSE),
                        false => PAUSE,
                    };
                }
                Err(error) => return self.failed("expired", &error),
            }
        }
        for _ in 0..LANES {
            let Some((lane, ids)) = self.round.left.pop_front() else {
                break;
            };
            if let Err(error) = self.expire_lane(&lane, &ids).await {
                return self.failed("expire", &error);
            }
        }
        let over = self.round.left.is_empty() && self.round.place == Place::default();
        let wait = if over { pause } else { Duration::ZERO };
        // It takes no more of the time than skip scans may.
        let now = Instant::now();
        self.round.next = next_discovery(now, wait, now.duration_since(started));
    }

    async fn expire_lane(&mut self, lane: &Lane, ids: &[Uuid]) -> Result<(), Error> {
        let order = self.destinations.order(lane);
        let endpoint: Option<Arc<str>> = match self.destinations.of(lane) {
            Some(Bound::One(to)) => Some(to.name.clone()),
            // Before fan-out it is dead for all of them.
            Some(Bound::Several(_)) => Some("".into()),
            // Another relay may know what their order is.
            None => None,
        };
        let name = &self.plan.config.name;
        let store = self.stage.store;
        let expiry = match store
            .expire(
                self.me.relay,
                name,
                lane,
                endpoint.as_deref(),
                order.holds(),
                ids,
            )
            .await
        {
            Ok(expiry) => expiry,
            // One row that the database can't take must not hold up the others.
            Err(error) if error.is_data() => {
                if let [id] = ids {
                    tracing::error!(message.id = %id, %error, "this message has expired and could not be given up, trying again");
                } else {
                    let one = |id: &Uuid| (lane.clone(), vec![*id]);
                    self.round.left.extend(ids.iter().map(one));
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        crash::point(Point::Expired);
        self.succeeded();
        if let Some(error) = expiry.history_error {
            tracing::error!(
                error,
                "history could not be written; the messages are settled"
            );
        }
        let Ok(dead @ 1..) = u64::try_from(expiry.dead) else {
            return Ok(());
        };
        self.stage.summary.dead += dead;
        tracing::info!(
            topic = lane.topic,
            endpoint = endpoint.as_deref().unwrap_or(&lane.endpoint),
            messages = dead,
            "expired while nothing could be delivered: dead letters now"
        );
        if order.is_by_key() && !order.holds() {
            let now = Instant::now();
            for key in expiry.keys {
                self.lanes.open(lane, key, now);
            }
        }
        Ok(())
    }
}
