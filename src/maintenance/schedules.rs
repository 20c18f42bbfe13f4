//! Inserts messages when their time comes.
//!
//! Model: every relay looks when a schedule should fire by the database's clock, and one of them inserts: the row of the schedule decides
//! (`sql/functions/fire.sql`). Authority: that clock and that row. A relay only sleeps as long as it takes until the next fire time, and
//! looks again; that its own clock runs at another speed makes it look early, or a moment late.
//! Failure: what can't be inserted is tried again soon. What no relay inserted in time was missed: see [`Schedule::due`].

use std::time::Duration;

use jiff::Timestamp;
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    schedule::Schedule,
    store::{Error, Store},
};

/// No sleep is longer: a clock may have been set.
const LONGEST: Duration = Duration::from_secs(60);

/// For a sleep that is longer no connection is kept.
const KEPT: Duration = Duration::from_secs(5);

/// After a call that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// After a message that was refused.
const REFUSED: Duration = Duration::from_secs(15);

/// A database that this relay may not work on is left alone: so often it is asked whether it was registered there.
const REGISTERED: Duration = Duration::from_millis(500);

/// Runs until the stop, as the configuration says then, once this relay has `started`.
pub async fn run(
    store: &Store,
    configs: &mut watch::Receiver<Vec<Schedule>>,
    started: impl Fn() -> bool,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    loop {
        let schedules = configs.borrow_and_update().clone();
        let round = async {
            if schedules.is_empty() {
                return std::future::pending().await;
            }
            let wait = match started() {
                true => run_once(store, &schedules).await,
                false => Ok(REGISTERED),
            };
            let wait = wait.unwrap_or_else(|error| {
                metrics.failed("schedules");
                tracing::warn!(%error, "schedules could not be looked at, trying again");
                AGAIN
            });
            if wait > KEPT {
                store.disconnect();
            }
            time::sleep(wait).await;
        };
        tokio::select! {
            () = round => {}
            Ok(()) = configs.changed() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Inserts what is due; returns how long to sleep.
pub async fn run_once(store: &Store, schedules: &[Schedule]) -> Result<Duration, Error> {
    let names: Vec<&str> = schedules.iter().map(|one| one.name.as_str()).collect();
    let (now, fired) = store.schedules(&names).await?;
    if names.iter().any(|name| !fired.contains_key(*name)) {
        store.add_schedules(&names).await?;
    }
    let mut wait = LONGEST;
    for schedule in schedules {
        if let Some(fired_at) = fired.get(&schedule.name)
            && let Some(due) = schedule.due(*fired_at, now)
        {
            match store.fire(schedule, *fired_at, &due).await {
                Ok(Some(messages)) => tracing::info!(
                    schedule = schedule.name,
                    at = %due.until,
                    messages,
                    "a schedule fired"
                ),
                Ok(None) => {}
                // The others may pass.
                Err(error) if error.is_data() => {
                    // Not the error: it shows the row.
                    let why = error.refusal().unwrap_or("the database refuses it");
                    tracing::warn!(
                        schedule = schedule.name,
                        why,
                        "the message of a schedule can't be inserted"
                    );
                    wait = wait.min(REFUSED);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(next) = schedule.times.next(now) {
            wait = wait.min(until(now, next));
        }
    }
    Ok(wait)
}

fn until(now: Timestamp, next: Timestamp) -> Duration {
    next.duration_since(now).try_into().unwrap_or_default()
}
