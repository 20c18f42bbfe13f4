//! How long the oldest message has been due, for those who set a limit to it.

use std::time::Duration;

use tokio::time::Instant;

use super::Session;
use crate::{
    message::Lane,
    relay::destination::Bound,
    store::{Error, Waiting},
};

/// It is looked for so often.
const OFTEN: Duration = Duration::from_secs(5);

/// In so many lanes at once.
const LANES: usize = 1000;

impl Session<'_> {
    /// Looks for the oldest message that this relay could deliver, now and then, if there is a limit.
    pub(super) async fn look_for_oldest(&mut self) {
        let now = Instant::now();
        if self.plan.config.max_due_age.is_none() || now < self.next_oldest || !self.may_call() {
            return;
        }
        self.next_oldest = now + OFTEN;
        match self.oldest().await {
            Ok(oldest) => {
                self.stage.vitals.oldest(oldest, now);
                self.succeeded();
            }
            Err(error) => self.failed("oldest_due", &error),
        }
    }

    async fn oldest(&self) -> Result<Option<(Lane, Duration)>, Error> {
        let mut waiting = Vec::new();
        for lane in self.lanes.iter().take(LANES) {
            let in_order = self.destinations.order(lane).is_by_key();
            let mut add = |leads_to: &str| {
                waiting.push(Waiting {
                    lane,
                    leads_to: leads_to.to_owned(),
                    in_order,
                });
            };
            match self.destinations.of(lane) {
                Some(Bound::One(to)) => add(&to.name),
                Some(Bound::Several(route)) => route.endpoints().for_each(add),
                None => {}
            }
        }
        match waiting.is_empty() {
            true => Ok(None),
            false => self.stage.store.oldest_due(&waiting).await,
        }
    }
}
