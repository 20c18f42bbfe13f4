//! The loop: settle what has finished, claim for the free slots, start requests, wait.
//!
//! Model: one task makes every database call on the delivery path, one claim and one settle at a time, side by side; tasks of
//! their own do HTTP only and report what came of it. Batches form by themselves from what finished during the last round trip. No transaction, row lock or connection
//! is held while a request is on its way.
//! Authority: leases in the database, kept by the renewal. What was finished is settled under the lease that it was
//! claimed under; what the database does not accept came too late and changes nothing.
//! Failure: while the database is away nothing is claimed, finished outcomes stay in memory (no more than there were slots)
//! and are settled when it is back. A claim whose commit is unknown is undone by [`Store::recover`]. A relay that was reaped, or
//! whose database crashed, drops what it has and registers anew. A task that panics gives its message back.
//! Sleep: while inserts wake this relay it asks for nothing that they would tell it (`doorbell.rs`).
//! Reload: a new [`Plan`] is taken over between two turns, under the same registration and leases (`session/reload.rs`).

mod bearing;
mod crash;
mod destination;
mod doorbell;
mod lanes;
mod plan;
mod renewal;
mod session;
mod tracer;
mod vitals;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use rand::{
    SeedableRng,
    rngs::{StdRng, SysRng},
};
use tokio::{
    sync::watch as updates,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use self::{
    crash::Point,
    session::{Ended, Session, Stage},
};
pub use self::{
    plan::Plan,
    tracer::{Export, Tracer},
    vitals::{Check, Vitals},
};
use crate::{
    delivery::{ClientError, Endpoint},
    metrics::Metrics,
    retry,
    route::Routes,
    saga,
    store::{self, Records, Store},
};

/// What the loop needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How this relay is called in history and `status`: the host's (the pod's) name by default.
    pub name: String,
    /// How long a lease outlives its relay.
    pub lease: Duration,
    /// How long new rows can stay unseen while nothing else wakes the relay.
    pub poll: Duration,
    /// Whether this relay may be the one that inserts wake, and leaves it to another one while that is awake.
    pub doorbell: bool,
    /// How long it sleeps at most while inserts would wake it.
    pub idle: Duration,
    /// Messages in one claim at most.
    pub batch: usize,
    /// Requests in flight at once, to all endpoints together. While more endpoints hang than it has room for, the others
    /// wait for them.
    pub concurrency: usize,
    /// Bytes of payload in memory at most, shared evenly by the endpoints.
    pub memory: usize,
    /// After SIGTERM: how long requests in flight may take to finish.
    pub grace: Duration,
    /// Not ready is a relay while a message that it could deliver has been due for longer; `None` = it does not look.
    pub max_due_age: Option<Duration>,
    /// A message is dead when relays died with it under their lease more often than this.
    pub max_lost: u32,
}

/// What it knows of work of several steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sagas {
    /// Plans of sagas whose rows have none, no name twice.
    pub plans: Vec<saga::Plan>,
    /// Retry policies that steps name.
    pub policies: BTreeMap<String, retry::Policy>,
}

/// All that one relay works with.
pub struct Relay {
    /// The loop's own settings.
    pub config: Config,
    /// How to connect.
    pub database: store::Config,
    /// What tells this configuration from another, in `status`.
    pub digest: String,
    /// The destinations.
    pub endpoints: Vec<Endpoint>,
    /// Which topic goes where.
    pub routes: Routes,
    /// Work of several steps.
    pub sagas: Sagas,
    /// What is written of what was done.
    pub records: Records,
    /// End, with success, as soon as nothing is due.
    pub until_empty: bool,
}

/// What others see of a relay while it runs.
pub struct Signals {
    /// How it is.
    pub vitals: Vitals,
    /// What it counts.
    pub metrics: Metrics,
    /// What it tells of its requests.
    pub tracer: Tracer,
}

/// What a relay did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were delivered.
    pub delivered: u64,
    /// Attempts that failed and will be made again.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

/// What stops a relay that was not asked to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An endpoint can't be sent to at all.
    #[error(transparent)]
    Endpoint(#[from] ClientError),
    /// The database can't be used.
    #[error(transparent)]
    Database(#[from] store::Error),
    /// The system gives no randomness.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// Between the first two tries to use a database that went away.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A relay that starts waits so long for its database; a longer outage is for whoever starts it again.
const START: Duration = Duration::from_secs(5);

/// Beyond the grace period: for the last settle, and no more, if the database does not answer.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Delivers until `shutdown` ends, then drains, by one plan all the time: see [`serve`].
pub async fn run(relay: Relay, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
    let (database, until_empty) = (relay.database.clone(), relay.until_empty);
    let plan = Plan::new(relay, None)?;
    let (_never_another, plans) = updates::channel(Arc::new(plan));
    let signals = Signals {
        vitals: Vitals::new(),
        metrics: Metrics::new(),
        tracer: Tracer::new(generator()?, None),
    };
    serve(&database, until_empty, plans, &signals, shutdown).await
}

/// Delivers until `shutdown` ends, then drains. A new plan is taken over as it comes.
///
/// What was not started is given back at once, what is in flight has the grace period. Starts only on a database that it
/// may deliver from; later outages are waited for.
pub async fn serve(
    database: &store::Config,
    until_empty: bool,
    mut plans: updates::Receiver<Arc<Plan>>,
    signals: &Signals,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Error> {
    let stop = CancellationToken::new();
    let mut summary = Summary::default();
    let latest = plans.clone();
    let mut life = Box::pin(live(
        database,
        until_empty,
        &mut plans,
        signals,
        &stop,
        &mut summary,
    ));
    let end = tokio::select! {
        end = &mut life => Some(end),
        () = shutdown => None,
    };
    let end = match end {
        Some(end) => end,
        None => {
            stop.cancel();
            signals.vitals.stopping();
            let patience = latest.borrow().config.grace + LAST_WORDS;
            time::timeout(patience, &mut life).await.unwrap_or_else(|_| {
                tracing::warn!(
                    "the database does not answer: ending without a last word to it; the other relays will take what is \
                     left after a lease time"
                );
                Ok(())
            })
        }
    };
    drop(life);
    end.map(|()| summary)
}

fn generator() -> Result<StdRng, Error> {
    StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))
}

/// One registration after the other, until the stop.
async fn live(
    database: &store::Config,
    until_empty: bool,
    plans: &mut updates::Receiver<Arc<Plan>>,
    signals: &Signals,
    stop: &CancellationToken,
    summary: &mut Summary,
) -> Result<(), Error> {
    // The keeper of the doorbell makes a few calls beside the loop: they take turns.
    let store = Store::single(database, store::PATIENCE)?;
    let settles = Store::single(database, store::PATIENCE)?;
    // A beat that takes longer than this has missed its turn anyway.
    let patience = (plans.borrow().config.lease / 3).max(Duration::from_millis(500));
    let beats = Store::single(database, patience)?;
    let looks = Store::single(database, session::CURIOSITY)?;
    // The one generator of this process; everything below takes it as a parameter.
    let mut rng = generator()?;
    let vitals = &signals.vitals;
    let mut unrouted = BTreeSet::new();
    let first = Some((&settles, Instant::now() + START));
    if !wait_for(&store, first, vitals, stop).await? {
        return Ok(());
    }
    let mut started = false;
    loop {
        let stage = Stage {
            store: &store,
            settles: &settles,
            beats: &beats,
            looks: &looks,
            rng: &mut rng,
            plans: &mut *plans,
            unrouted: &mut unrouted,
            vitals,
            metrics: &signals.metrics,
            tracer: &signals.tracer,
            summary: &mut *summary,
            until_empty,
        };
        match Session::open(stage).await {
            Ok(session) => {
                started = true;
                match Box::pin(session.run(stop)).await {
                    Ended::Done => return Ok(()),
                    Ended::Anew => crash::point(Point::Anew),
                }
            }
            // It was there a moment ago: it went away again before this relay was registered.
            Err(Error::Database(error)) if started => {
                tracing::warn!(%error, "could not register anew, trying again");
                time::sleep(FIRST_WAIT).await;
            }
            Err(error) => return Err(error),
        }
        // The database may be another one by now: a promoted replica, a restored copy.
        if !wait_for(&store, None, vitals, stop).await? {
            return Ok(());
        }
    }
}

/// Waits until the database can be used; one that must not be used ends the relay. `false`: stopped.
///
/// The `first` time it also makes the connection for settles, and waits until then only: one that does not answer may be about to (a
/// pooler that has not yet noticed that its server restarted, a container beside this one).
async fn wait_for(
    store: &Store,
    first: Option<(&Store, Instant)>,
    vitals: &Vitals,
    stop: &CancellationToken,
) -> Result<bool, Error> {
    let mut wait = FIRST_WAIT;
    let mut said = String::new();
    loop {
        let looked = async {
            let Some((settles, _)) = first else {
                return store.check_again().await;
            };
            let notes = store.check().await?;
            // Before requests can take the last file descriptors.
            settles.connect().await?;
            for note in notes {
                tracing::warn!("{note}");
            }
            Ok(())
        };
        let error = match looked.await {
            Ok(()) => return Ok(!stop.is_cancelled()),
            Err(error) => error,
        };
        let over =
            |(_, end)| Instant::now() + wait > end || matches!(error, store::Error::Config(_));
        if matches!(error, store::Error::Refused(_)) || first.is_some_and(over) {
            return Err(error.into());
        }
        let error = error.to_string();
        if error != said {
            tracing::warn!(error, "the database can't be used, trying again");
        }
        said = error;
        vitals.failed(Instant::now());
        tokio::select! {
            () = time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(5)),
            () = stop.cancelled() => return Ok(false),
        }
    }
}
