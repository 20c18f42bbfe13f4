//! Partitions and retention: made a week ahead, dropped when their time is over.
//!
//! Any relay does it, at its start and about once an hour; in the database one at a time. It never touches what is
//! undelivered, and a failure stops nothing: it is said, and tried again soon.

pub mod alerts;
mod sample;
pub mod schedules;
pub mod spans;
mod trail;

use std::time::Duration;

use bytes::Bytes;
use rand::{Rng, RngExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::{
    sample::sample,
    trail::{Seen, Trail},
};
use crate::{
    message::Delivery,
    store::{Error, History, Partitions, Retention, Store},
};

/// Which history is kept, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long.
    pub keep: Retention,
    /// How long the keys of requests are.
    pub requests: Duration,
    /// How long sagas that are over are, and a repeated start of one is none.
    pub sagas: Duration,
    /// Which attempts are kept at all.
    pub record: History,
}

/// Days for which partitions exist ahead.
const AHEAD: i32 = 7;
const EVERY: Duration = Duration::from_secs(60 * 60);
const AGAIN: Duration = Duration::from_secs(60);

/// Requests that are forgotten in one transaction.
const FORGOTTEN: i32 = 5000;

/// Runs until the stop; at once when its configuration changes.
pub async fn run(
    store: &Store,
    configs: &mut watch::Receiver<Config>,
    stop: &CancellationToken,
    rng: &mut impl Rng,
) {
    loop {
        let config = configs.borrow_and_update().clone();
        let done = tokio::select! {
            done = run_once(store, &config) => done,
            // A database that does not answer must not hold up the end.
            () = stop.cancelled() => return,
        };
        // The next round is an hour away.
        store.disconnect();
        let wait = match done {
            Ok(()) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "partitions of history could not be maintained, trying again");
                AGAIN
            }
        };
        // Replicas that were started together must not come together.
        let wait = wait.mul_f64(rng.random_range(0.75..1.25));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(()) = configs.changed() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// One round.
pub async fn run_once(store: &Store, config: &Config) -> Result<(), Error> {
    loop {
        let done = store.maintain_partitions(AHEAD, &config.keep).await?;
        let Partitions {
            made,
            dropped,
            thinned,
        } = done;
        if done != Partitions::default() {
            tracing::info!(made, dropped, thinned, "partitions of history maintained");
        }
        if thinned == 0 {
            break;
        }
    }
    while store.forget_requests(config.requests, FORGOTTEN).await? == FORGOTTEN {}
    while store.forget_sagas(config.sagas, FORGOTTEN).await? == FORGOTTEN {}
    Ok(())
}

/// What is not from the outbox, as deliveries are sent: some JSON.
fn post(id: Uuid, topic: &str, body: Bytes) -> Delivery {
    Delivery {
        lease: 0,
        lane_endpoint: String::new(),
        id,
        topic: topic.into(),
        key: None,
        kind: None,
        body: Some(body),
        content_type: Some("application/json".into()),
        headers: Vec::new(),
        seq: 0,
        attempts: 0,
        lost: 0,
        throttled: 0,
        generation: 0,
        sent_to: None,
        step: None,
        created_at: String::new(),
        age: Duration::ZERO,
        expires_in: None,
    }
}
