//! Another plan is taken over, between two turns.
//!
//! Registration and leases stay. What is on its way is finished by the endpoint as it was; what was only claimed for an
//! endpoint that changed is given back and claimed anew. That the database is told may wait: a claim that finds no row for
//! its endpoint makes one.

use tokio::time::Instant;

use super::Session;
use crate::relay::destination::resize;

impl Session<'_> {
    /// Takes over the newest plan. Nothing in this can fail.
    pub(super) fn adopt(&mut self) {
        let plan = self.stage.plans.borrow_and_update().clone();
        let way = |session: &Session<'_>, lane: &_| {
            let to = &session.destinations;
            (to.names(lane), to.order(lane))
        };
        let known: Vec<_> = self.lanes.iter().cloned().collect();
        let before: Vec<_> = known.iter().map(|lane| way(self, lane)).collect();
        self.destinations.adopt(&plan);
        let [from, to] = [&self.plan, &plan].map(|plan| plan.config.concurrency);
        resize(&self.desk.total, from, to, &mut self.tasks);
        // What is remembered of a lane holds for one order only, and one that has no route now is to be warned of.
        let changed: Vec<_> = known
            .into_iter()
            .zip(before)
            .filter(|(lane, before)| way(self, lane) != *before)
            .map(|(lane, _)| lane)
            .collect();
        self.lanes.forget(&changed);
        self.lanes.set_poll(plan.config.poll);
        let config = &plan.config;
        self.stage.vitals.plan(config.poll, config.max_due_age);
        self.next_discovery = Instant::now();
        self.idle = false;
        self.plan = plan;
        self.unannounced = true;
    }

    /// Tells the database of a plan that was taken over.
    pub(super) async fn announce(&mut self) {
        if !self.unannounced || !self.may_call() {
            return;
        }
        let announced = async {
            let store = self.stage.store;
            store.add_endpoints(&self.plan.timeouts()).await?;
            store.set_digest(self.me.relay, &self.plan.digest).await
        };
        match announced.await {
            Ok(()) => {
                self.unannounced = false;
                self.succeeded();
            }
            Err(error) => self.failed("set_digest", &error),
        }
    }
}
