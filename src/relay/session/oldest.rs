//! How long the oldest message has been due, for those who set a limit to it.
//!
//! Model: the loop says which lanes it delivers, a task of its own asks on a connection of its own. So a look that takes long, where an
//! old snapshot keeps what was delivered from being vacuumed, delays no message; it is given a second, and takes a twentieth
//! of the time at most.
//! Failure: what could not be found out is unknown, and no reason to be unready.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{self, Instant},
};

use super::Session;
use crate::{
    relay::{lanes::pause_after, vitals::Vitals},
    store::{Store, Waiting},
};

/// It is looked for so often.
const OFTEN: Duration = Duration::from_secs(5);

/// In so many lanes at once.
const LANES: usize = 1000;

/// The server gives up after a second.
pub(in crate::relay) const PATIENCE: Duration = Duration::from_secs(3);

/// Looks until nobody says where any more.
pub(super) async fn look(store: Store, mut lanes: watch::Receiver<Vec<Waiting>>, vitals: Vitals) {
    while lanes.changed().await.is_ok() {
        let waiting = lanes.borrow_and_update().clone();
        let started = Instant::now();
        let oldest = match waiting.is_empty() {
            true => None,
            false => store.oldest_due(&waiting).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "how long the oldest message has been due is not known");
                None
            }),
        };
        let now = Instant::now();
        vitals.oldest(oldest, now);
        time::sleep(pause_after(now.duration_since(started))).await;
    }
}

/// Who scrapes asks less often than this.
const COUNTED: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Says now and then how many messages are held for each endpoint.
    pub(super) fn count_held(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNTED;
        self.stage.metrics.held(self.destinations.held());
    }

    /// Says now and then which lanes this relay delivers, if there is a limit.
    pub(super) fn offer_lanes(&mut self, now: Instant) {
        if self.plan.config.max_due_age.is_none() || now < self.next_oldest {
            return;
        }
        self.next_oldest = now + OFTEN;
        let to = &self.destinations;
        let mut waiting = Vec::new();
        for lane in self.lanes.iter().take(LANES) {
            let in_order = to.order(lane).is_by_key();
            waiting.extend(to.names(lane).into_iter().map(|leads_to| Waiting {
                lane: lane.clone(),
                leads_to,
                in_order,
            }));
        }
        self.offered.send_replace(waiting);
    }
}
