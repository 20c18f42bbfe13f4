//! Sees jobs through that were begun over HTTP: any relay with the API does, so a job outlives the one that began it.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time};
use tokio_util::sync::CancellationToken;

use crate::{
    relay::Vitals,
    store::{Error, Store},
};

/// A piece of a job has so many messages at most.
const PIECE: i32 = 500;

/// What another relay began and did not see through is looked for so often.
const EVERY: Duration = Duration::from_secs(15);

/// Another relay is at the same job, or somebody has locked what is needed.
const CROWDED: Duration = Duration::from_millis(500);

/// A database that this relay may not work on is left alone: so often it is asked whether it was registered there.
const REGISTERED: Duration = Duration::from_millis(500);

/// Until the stop.
pub(super) async fn run(store: Store, begun: Arc<Notify>, vitals: Vitals, stop: CancellationToken) {
    loop {
        let done = match vitals.started() {
            true => round(&store).await,
            false => Ok(REGISTERED),
        };
        let wait = match done {
            Ok(wait) => wait,
            Err(error) if error.is_crowded() => CROWDED,
            Err(error) => {
                tracing::warn!(%error, "a job could not get on, trying again");
                EVERY
            }
        };
        tokio::select! {
            () = time::sleep(wait) => {}
            () = begun.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// A piece of each job that may go on; returns how long the next one has to wait.
async fn round(store: &Store) -> Result<Duration, Error> {
    let mut wait = EVERY;
    for (job, seconds) in store.unattended_jobs().await? {
        let mut next = seconds;
        if seconds <= 0.0 {
            let progress = store.run_job(job, PIECE).await?;
            next = match progress.state.as_str() {
                "running" => progress.wait,
                "busy" => CROWDED.as_secs_f64(),
                _ => continue,
            };
        }
        wait = wait.min(Duration::try_from_secs_f64(next).unwrap_or(EVERY));
    }
    Ok(wait)
}
