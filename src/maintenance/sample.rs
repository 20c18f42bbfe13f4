//! How the shared database stands, looked for now and then for those who scrape.
//!
//! Model: every replica looks, on a connection of its own, so that a scrape costs the database nothing and waits for nothing.
//! It counts up to a limit, the less of each lane the more lanes there are, and takes a twentieth of the time at most.
//! Failure: what was seen last stays; the counter of samples stands still, which an alert can see.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng, RngExt};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::Trail;
use crate::{
    metrics::{Backlog, Metrics, Sample, Standing},
    store::{EndpointStatus, Error, LaneStatus, Status, Store},
};

/// Rows that are counted in all lanes together, about.
const ROWS: usize = 200_000;

/// ... and in one lane.
const IN_A_LANE: usize = 10_000;

/// Looking takes one part in so many of the time.
const SHARE: u32 = 20;

/// Looks every so often until the stop.
pub async fn sample(
    store: &Store,
    metrics: &Metrics,
    trail: &Trail,
    every: Duration,
    stop: &CancellationToken,
    rng: &mut impl Rng,
) {
    let mut lanes = 0;
    loop {
        let started = Instant::now();
        let most = IN_A_LANE.min(ROWS / lanes.max(1)).max(100);
        let seen = tokio::select! {
            seen = look(store, i32::try_from(most).unwrap_or(i32::MAX)) => seen,
            () = stop.cancelled() => return,
        };
        match seen {
            Ok((sample, count)) => {
                metrics.sampled(&sample);
                trail.add(&sample.backlogs, Instant::now());
                lanes = count;
            }
            Err(error) => {
                metrics.failed("sample");
                tracing::debug!(%error, "how the database stands is not known");
            }
        }
        // Replicas that were started together must not come together.
        let wait = every
            .max(started.elapsed() * SHARE)
            .mul_f64(rng.random_range(0.9..1.1));
        tokio::select! {
            () = time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn look(store: &Store, most: i32) -> Result<(Sample, usize), Error> {
    let status = store.status_counting(most).await?;
    let horizon = store.horizon().await?;
    let bell = store.doorbell().await?;
    let lanes = status.lanes.len();
    Ok((describe(&status, horizon, bell.hangs && bell.kept), lanes))
}

fn describe(status: &Status, horizon: Duration, bell: bool) -> Sample {
    // An endpoint for which nothing waits says so, too.
    let mut backlogs: BTreeMap<&str, Backlog> = BTreeMap::new();
    for endpoint in &status.endpoints {
        add(&mut backlogs, &endpoint.endpoint, 0, 0.0);
    }
    for lane in &status.lanes {
        let oldest = oldest(lane);
        if lane.unrouted || lane.leads_to.is_empty() {
            add(&mut backlogs, "", lane.pending, oldest);
        } else {
            // What goes to several endpoints waits for each of them.
            for endpoint in &lane.leads_to {
                add(&mut backlogs, endpoint, lane.pending, oldest);
            }
        }
    }
    let standing = |endpoint: &EndpointStatus| Standing {
        endpoint: endpoint.endpoint.clone(),
        paused: endpoint.paused_seconds.is_some(),
        breaker: match endpoint.breaker.as_str() {
            "open" => 2,
            "half_open" => 1,
            _ => 0,
        },
        leased: endpoint.leased,
    };
    let dead = status.dead_letters.iter();
    let live = status
        .relays
        .iter()
        .filter(|relay| !relay.is_late())
        .count();
    Sample {
        endpoints: status.endpoints.iter().map(standing).collect(),
        backlogs: backlogs.into_values().collect(),
        dead: dead
            .map(|dead| (dead.endpoint.clone(), dead.reason.clone(), dead.count))
            .collect(),
        relays: i64::try_from(live).unwrap_or(i64::MAX),
        horizon: horizon.as_secs_f64(),
        bell,
    }
}

fn add<'a>(backlogs: &mut BTreeMap<&'a str, Backlog>, to: &'a str, messages: i64, oldest: f64) {
    let backlog = backlogs.entry(to).or_insert_with(|| Backlog {
        endpoint: to.to_owned(),
        messages: 0,
        oldest: 0.0,
    });
    backlog.messages += messages;
    backlog.oldest = backlog.oldest.max(oldest);
}

/// Of what is ready and what is due, in seconds.
fn oldest(lane: &LaneStatus) -> f64 {
    let due = lane.due_in.map_or(0.0, |due_in| -due_in);
    due.max(lane.oldest_seconds.unwrap_or(0.0)).max(0.0)
}
