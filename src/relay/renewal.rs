//! Keeps this relay's leases, and watches the other relays.
//!
//! Model: one beat every fifth of the lease time, on a connection of its own, whatever is in flight. The lease has nothing
//! to do with the length of a request.
//! Authority: the [`Lifeline`]. It is good until a lease time after the last beat that is known to be committed, counted
//! from before the beat was sent, so it ends here before anybody else may take the leases.
//! Failure: a beat that fails is tried again at once, and the watch over the others starts anew. When the lifeline ends,
//! requests in flight are aborted and none is started, but the registration stays: if the database was away for everybody, nobody
//! was reaped, and what has finished can still be settled. A relay whose row is gone was reaped: its lifeline is cut at once.

use std::time::Duration;

use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    crash::{self, Point},
    watch::Watch,
};
use crate::store::{Error, Peer, Store};

/// Until when this relay may act on its leases.
#[derive(Clone, Debug)]
pub(super) struct Lifeline {
    until: watch::Receiver<Instant>,
    lease: Duration,
}

impl Lifeline {
    /// A lifeline that starts at `sent`, the moment before the registration was sent.
    pub(super) fn new(sent: Instant, lease: Duration) -> (watch::Sender<Instant>, Lifeline) {
        let (sender, until) = watch::channel(sent + lease);
        (sender, Lifeline { until, lease })
    }

    /// Whether a request may still be started: not in the last third of a lease that nobody renewed.
    pub(super) fn may_start(&self) -> bool {
        Instant::now() + self.lease / 3 < *self.until.borrow()
    }

    /// Ends when the lease time is over: what is in flight must be aborted.
    pub(super) async fn cut(&self) {
        let mut until = self.until.clone();
        loop {
            let end = *until.borrow_and_update();
            tokio::select! {
                () = time::sleep_until(end) => return,
                changed = until.changed() => {
                    if changed.is_err() {
                        // Nobody renews any more: the last word stands.
                        time::sleep_until(end).await;
                        return;
                    }
                }
            }
        }
    }
}

/// What the renewal of one relay needs.
pub(super) struct Renewal {
    /// A connection of its own.
    pub(super) store: Store,
    /// Whose leases.
    pub(super) relay: Uuid,
    /// How long they outlive a beat.
    pub(super) lease: Duration,
    /// Where the news of a beat goes.
    pub(super) lifeline: watch::Sender<Instant>,
    /// Where relays that were seen to be dead go. The loop reaps them: the next beat must not wait for that.
    pub(super) dead: mpsc::UnboundedSender<Peer>,
}

impl Renewal {
    /// Beats until the relay is found to be reaped. Cancels `reaped` however it ends.
    pub(super) async fn run(self, reaped: CancellationToken) {
        let _reaped = reaped.drop_guard();
        let mut watch = Watch::new(self.lease);
        let mut tick = time::interval(self.lease / 5);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0_u32;
        loop {
            tick.tick().await;
            let sent = Instant::now();
            match self.beat(&mut watch, sent).await {
                Ok(true) => {
                    if failures > 0 {
                        tracing::info!(relay = %self.relay, failures, "the lease is renewed again");
                    }
                    failures = 0;
                }
                Ok(false) => {
                    tracing::error!(relay = %self.relay, "this relay was taken for dead and reaped: registering anew");
                    self.lifeline.send_replace(sent);
                    return;
                }
                Err(error) => {
                    watch.forget();
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(relay = %self.relay, %error, "the lease could not be renewed, trying again");
                    }
                    // The next beat must not wait for a whole tick: the lifeline is running out.
                    tick.reset_after((self.lease / 20).max(Duration::from_millis(50)));
                }
            }
        }
    }

    /// One beat, and one look at the others, in one statement: a look counts only if the beat with it was committed. `false`: this
    /// relay's row is gone.
    async fn beat(&self, watch: &mut Watch, sent: Instant) -> Result<bool, Error> {
        let Some((_, peers)) = self.store.beat(self.relay).await? else {
            return Ok(false);
        };
        crash::point(Point::Beat);
        self.lifeline.send_replace(sent + self.lease);
        for peer in watch.sample(peers, sent) {
            // Nobody listens only when this session is over.
            drop(self.dead.send(peer));
        }
        Ok(true)
    }
}
