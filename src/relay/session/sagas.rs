//! Sagas that begin, and those that go back.

use tokio::time::Instant;

use super::Session;

/// So many of each kind in one statement.
const BATCH: i32 = 100;

impl Session<'_> {
    /// Begins what is new, and turns back what is to go back, if the last skip scan told of any.
    pub(super) async fn tend_sagas(&mut self) {
        let now = Instant::now();
        if self.next_saga.is_none_or(|at| at > now) || !self.may_call() {
            return;
        }
        match self.stage.store.tend_sagas(&self.plan.plans, BATCH).await {
            Ok(tended) => {
                self.next_saga = None;
                self.succeeded();
                if tended.begun > 0 || tended.back > 0 {
                    tracing::debug!(begun = tended.begun, back = tended.back, "sagas");
                    // Their steps lie in lanes that may be new; and there may be more of them.
                    self.discover().await;
                }
            }
            Err(error) => self.failed("tend_sagas", &error),
        }
    }
}
