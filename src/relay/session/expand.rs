//! Fan-out: rows of a topic that goes to several endpoints become one row for each, which go their own ways from there.

use tokio::time::Instant;

use super::{Session, Void};
use crate::{
    message::Lane,
    relay::{
        crash::{self, Point},
        destination::Bound,
        lanes::Start,
    },
    store::{ClaimState, Expand},
};

impl Session<'_> {
    /// Makes one row per endpoint of what is due in the lane of a topic.
    pub(super) async fn expand(&mut self, lane: &Lane) -> Result<(), Void> {
        let started = Instant::now();
        let dry = |lane: &Lane| self.lanes.is_dry(lane);
        let room = self.destinations.room_for_several(lane, started, dry);
        let (Some((messages, bytes)), Some(Bound::Several(route))) =
            (room, self.destinations.of(lane))
        else {
            return Ok(());
        };
        let to: Vec<&str> = route.endpoints().collect();
        let Start { floors, sweep, .. } = self.lanes.start(lane, usize::MAX, started);
        let expand = Expand {
            topic: &lane.topic,
            to: &to,
            known: &self.plan.names(),
            limit: i32::try_from(messages.min(self.plan.config.batch)).unwrap_or(i32::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            floors,
        };
        let expanded = match self.stage.store.expand(&self.me, &expand).await {
            Ok(expanded) => expanded,
            Err(error) => {
                self.claim_failed("expand", &error);
                return Ok(());
            }
        };
        crash::point(Point::Expanded);
        self.succeeded();
        self.stage.vitals.answered("expand");
        let locked = expanded.seen.state == ClaimState::Busy;
        self.stage.vitals.claimed(lane, locked, Instant::now());
        let now = Instant::now();
        let cost = now.duration_since(started);
        let jitter = rand::RngExt::random(self.stage.rng);
        self.lanes
            .claimed(lane, &expanded.seen, sweep, cost, now, jitter);
        match expanded.seen.state {
            ClaimState::RelayGone | ClaimState::OtherSession | ClaimState::OtherEpoch => {
                return Err(self.void(expanded.seen.state));
            }
            ClaimState::Missing => self.look_anew(lane, now),
            ClaimState::Claimed
            | ClaimState::Empty
            | ClaimState::Busy
            | ClaimState::Paused
            | ClaimState::NotBefore
            | ClaimState::Open
            | ClaimState::Saturated => {}
        }
        for endpoint in expanded.endpoints {
            let topic = lane.topic.clone();
            self.lanes.filled(Lane { topic, endpoint }, now);
        }
        Ok(())
    }

    /// What this relay remembers holds no more.
    pub(super) fn void(&self, state: ClaimState) -> Void {
        tracing::error!(relay = %self.me.relay, ?state, "this registration is void: registering anew");
        Void
    }

    /// Somebody removed the row of this lane: the next skip scan makes it again.
    pub(super) fn look_anew(&mut self, lane: &Lane, now: Instant) {
        self.lanes.forget(std::slice::from_ref(lane));
        self.next_discovery = now;
    }
}
