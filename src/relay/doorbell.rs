//! Sleeps until an INSERT wakes it, instead of asking the database again and again.
//!
//! Model: of all relays one keeps the bell, with two sessions of its own ([`Bell`]). To sleep it asks for the lock that makes
//! inserters ring: from when it queues, new ones ring; when it is granted, those from before have ended. The session looks at
//! both moments and at each ring, so no commit is missed; in between it sleeps. While messages come fast it lets go of the lock,
//! and nobody has to ring.
//! Authority: none. A wake-up is never needed for correctness; the session polls, only rarely, whatever this says.
//! Failure: whatever goes wrong with the two sessions, both are given up, and the session polls as it would without. Another relay
//! sees that nobody keeps the bell when it looks, about once a second. Where the connections turn out to be no sessions
//! (PgBouncer in transaction mode) nobody keeps it, which is tried again every few minutes only.

mod pace;

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{self, MissedTickBehavior},
};
use uuid::Uuid;

pub(super) use self::pace::Pace;
use crate::store::{Bell, Error, Lock, Store, Taken};

/// One after the other tries to become the keeper, on average, when it is gone.
const BETWEEN: Duration = Duration::from_millis(30);

/// ... but all of them within this.
const LONGEST_TURN: Duration = Duration::from_millis(1500);

/// The sessions are asked so often whether they live.
const PING: Duration = Duration::from_secs(5);

/// After sessions that broke, at first.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// After connections that are no sessions.
const DEAF: Duration = Duration::from_secs(300);

/// The first look whether the request for the lock queues; each one after it waits twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// How this relay stands to the bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It does not keep it.
    Off,
    /// It keeps it, and nobody rings.
    Awake,
    /// Whoever inserts from now on rings.
    Queued,
    /// Whoever inserts rings; those who did not ring have ended.
    Armed,
}

/// What the session wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Not to keep the bell.
    Leave,
    /// Nobody is to ring.
    Awake,
    /// To be rung for.
    Sleep,
}

/// The session's end of it.
pub(super) struct Doorbell {
    stage: watch::Receiver<Stage>,
    rings: watch::Receiver<u64>,
    orders: watch::Sender<Order>,
    vacancies: mpsc::UnboundedSender<usize>,
    seen: u64,
}

/// What the session heard.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    /// The bell, so many times.
    Rings(u64),
    /// How it stands to it now.
    Stage(Stage),
}

/// Keeps the bell, as a task of its own.
struct Keeper {
    store: Store,
    relay: Uuid,
    rng: StdRng,
    stage: watch::Sender<Stage>,
    rings: watch::Sender<u64>,
    orders: watch::Receiver<Order>,
    vacancies: mpsc::UnboundedReceiver<usize>,
}

// === impl Doorbell ===

impl Doorbell {
    /// Starts the keeper, who waits for a vacancy.
    pub(super) fn start(
        store: &Store,
        relay: Uuid,
        rng: &mut StdRng,
        tasks: &mut JoinSet<()>,
    ) -> Doorbell {
        let (stage, stages) = watch::channel(Stage::Off);
        let (rings, rung) = watch::channel(0);
        let (orders, ordered) = watch::channel(Order::Leave);
        let (vacancies, vacant) = mpsc::unbounded_channel();
        let keeper = Keeper {
            store: store.clone(),
            relay,
            rng: StdRng::from_rng(rng),
            stage,
            rings,
            orders: ordered,
            vacancies: vacant,
        };
        tasks.spawn(keeper.run());
        Doorbell {
            stage: stages,
            rings: rung,
            orders,
            vacancies,
            seen: 0,
        }
    }

    /// Waits for a ring, or for another stage.
    pub(super) async fn hear(&mut self) -> Heard {
        tokio::select! {
            biased;
            Ok(()) = self.stage.changed() => Heard::Stage(*self.stage.borrow_and_update()),
            Ok(()) = self.rings.changed() => {
                let count = *self.rings.borrow_and_update();
                Heard::Rings(count - std::mem::replace(&mut self.seen, count))
            }
            // Its task is gone, and with it the whole relay.
            else => std::future::pending().await,
        }
    }

    /// How this relay stands to the bell.
    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Says what is wanted from now on.
    pub(super) fn order(&self, order: Order) {
        self.orders.send_if_modified(|before| {
            let other = *before != order;
            *before = order;
            other
        });
    }

    /// Nobody keeps the bell, and there are so many relays that could.
    pub(super) fn vacant(&self, relays: usize) {
        // Nobody takes it only when the relay ends.
        self.vacancies.send(relays).ok();
    }
}

// === impl Keeper ===

impl Keeper {
    /// Until the session ends.
    async fn run(mut self) {
        let mut failures = 0_u32;
        let mut told_deaf = false;
        while let Some(mut relays) = self.vacancies.recv().await {
            // What was said while this one was busy is as old as that.
            while let Ok(latest) = self.vacancies.try_recv() {
                relays = latest;
            }
            // Fifty relays see it within a second: they must not all connect.
            let others = u32::try_from(relays.saturating_sub(1)).unwrap_or(u32::MAX);
            let turn = BETWEEN.saturating_mul(others).min(LONGEST_TURN);
            time::sleep(turn.mul_f64(self.rng.random())).await;
            let kept = match self.take_turn().await {
                Ok(Some(Taken::Mine(bell))) => {
                    tracing::info!(relay = %self.relay, "keeps the doorbell: inserts wake this relay");
                    failures = 0;
                    let end = self.keep(bell).await;
                    self.stage.send_replace(Stage::Off);
                    end
                }
                Ok(Some(Taken::Deaf)) => {
                    if !std::mem::replace(&mut told_deaf, true) {
                        tracing::warn!(
                            relay = %self.relay,
                            "no doorbell: nothing is heard on the connections to the database, as behind a pooler in transaction \
                             mode; polling"
                        );
                    }
                    time::sleep(DEAF.mul_f64(self.rng.random_range(0.75..1.25))).await;
                    Ok(())
                }
                Ok(Some(Taken::Kept) | None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                if failures == 0 {
                    tracing::warn!(relay = %self.relay, %error, "no doorbell for now: polling");
                }
                let wait = AGAIN.saturating_mul(1 << failures.min(6)).min(LONGEST);
                failures += 1;
                time::sleep(wait.mul_f64(self.rng.random_range(0.5..1.0))).await;
            }
        }
    }

    /// Tries to become the keeper. `None`: there is no need any more.
    async fn take_turn(&mut self) -> Result<Option<Taken>, Error> {
        let doorbell = self.store.doorbell().await?;
        if doorbell.stray && !self.store.hang_up().await? {
            tracing::debug!(
                "a dead relay keeps the doorbell under another role: waiting for its connection to end"
            );
        }
        if *self.orders.borrow() == Order::Leave || !doorbell.hangs || doorbell.kept {
            return Ok(None);
        }
        let taken = Bell::take(&self.store, self.relay, &self.rings);
        taken.await.map(Some)
    }

    /// Arms and disarms as it is told, until it is told to leave.
    async fn keep(&mut self, mut bell: Box<Bell>) -> Result<(), Error> {
        loop {
            match self.attend(&mut bell, Order::Awake, Stage::Awake).await? {
                Order::Leave => return Ok(()),
                Order::Awake => {}
                Order::Sleep => {
                    if self.arm(&mut bell).await? {
                        self.attend(&mut bell, Order::Sleep, Stage::Armed).await?;
                        self.stage.send_replace(Stage::Awake);
                        bell.lock.disarm().await?;
                    }
                }
            }
        }
    }

    /// Stays at this stage until something else is wanted, and sees that both sessions live.
    async fn attend(
        &mut self,
        bell: &mut Bell,
        order: Order,
        stage: Stage,
    ) -> Result<Order, Error> {
        self.stage.send_replace(stage);
        let mut tick = time::interval(PING);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        loop {
            tokio::select! {
                wanted = other_than(order, &mut self.orders) => return Ok(wanted),
                error = bell.listener.broken() => return Err(error),
                error = bell.lock.broken() => return Err(error),
                _ = tick.tick() => {
                    bell.listener.ping().await?;
                    bell.lock.ping().await?;
                }
            }
        }
    }

    /// Asks for the lock and waits until it is there, or something else is wanted. Returns whether it is held.
    async fn arm(&mut self, bell: &mut Bell) -> Result<bool, Error> {
        let Bell { listener, lock } = bell;
        let lock: &Lock = lock;
        let armed = lock.arm();
        tokio::pin!(armed);
        let mut cancelled = false;
        let mut queued = false;
        let mut wait = FIRST_LOOK;
        loop {
            tokio::select! {
                biased;
                armed = &mut armed => return armed,
                _ = other_than(Order::Sleep, &mut self.orders), if !cancelled => {
                    self.stage.send_replace(Stage::Awake);
                    cancelled = true;
                    wait = AGAIN;
                    lock.cancel().await?;
                }
                error = listener.broken() => return Err(error),
                () = time::sleep(wait) => {
                    if cancelled {
                        // A cancel can come too early, or get lost.
                        lock.cancel().await?;
                    } else if queued {
                        listener.ping().await?;
                    } else if listener.sees(lock.pid()).await? {
                        queued = true;
                        wait = PING;
                        self.stage.send_replace(Stage::Queued);
                    } else {
                        wait = (wait * 2).min(PING);
                    }
                }
            }
        }
    }
}

/// Waits until something else is wanted.
async fn other_than(order: Order, orders: &mut watch::Receiver<Order>) -> Order {
    let wanted = orders.wait_for(|wanted| *wanted != order).await;
    wanted.map_or(Order::Leave, |wanted| *wanted)
}
