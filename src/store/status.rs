//! What `status` shows.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Alert, Error, Parameter, Store, sql};
use crate::message::Lane;

/// Rows of one kind are counted up to this number; one more means "more".
pub const COUNTED: i32 = 10_000;

/// How everything stands, read in six statements.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The version of the schema.
    pub schema_version: i32,
    /// The relays that live or were not yet seen to be dead.
    pub relays: Vec<RelayStatus>,
    /// Whether relays that live run different configurations: during a rolling update, or because one was forgotten.
    pub configs_differ: bool,
    /// The endpoints that any relay ever had.
    pub endpoints: Vec<EndpointStatus>,
    /// The lanes that hold pending messages.
    pub lanes: Vec<LaneStatus>,
    /// Dead letters by endpoint and reason.
    pub dead_letters: Vec<DeadStatus>,
    /// What is wrong, where relays look for that.
    pub alerts: Vec<Alert>,
}

/// A lane, for [`Store::oldest_due`].
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Which one.
    pub lane: Lane,
    /// An endpoint that its messages go to.
    pub leads_to: String,
    /// Whether they go in the order of their keys.
    pub in_order: bool,
}

/// One relay.
#[derive(Clone, Debug, Serialize)]
pub struct RelayStatus {
    /// Its identity.
    pub relay: Uuid,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Tells whether two relays run the same configuration.
    pub config_digest: String,
    /// It differs from what most of the others that live run; of as many, from what the newest runs.
    pub config_differs: bool,
    /// Seconds since it registered.
    pub up_seconds: f64,
    /// Seconds since its last beat, by the database's clock.
    pub beat_seconds: f64,
    /// Its lease time in seconds.
    pub lease_seconds: f64,
    /// Messages that it holds.
    pub leased: i64,
    /// It is the one that inserts wake.
    pub keeps_bell: bool,
}

/// One endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointStatus {
    /// Its name.
    pub endpoint: String,
    /// Seconds since it was paused; none while it runs.
    pub paused_seconds: Option<f64>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why.
    pub pause_reason: Option<String>,
    /// Seconds until it may be asked again, where it asked for that.
    pub closed_for: Option<f64>,
    /// Its circuit breaker: `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Seconds until an open breaker lets probes through.
    pub open_for: Option<f64>,
    /// Messages on their way to it.
    pub leased: i64,
    /// What was done to it last: `paused` or `resumed`; none if neither ever was.
    pub change: Option<String>,
    /// Seconds since then.
    pub changed_seconds: Option<f64>,
    /// Who did it.
    pub changed_by: Option<String>,
    /// Why.
    pub change_reason: Option<String>,
}

/// One lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneStatus {
    /// Its topic.
    pub topic: String,
    /// Its endpoint column: empty for what the application inserted.
    pub endpoint: String,
    /// The endpoints that its messages go to, as far as a relay has said so.
    pub leads_to: Vec<String>,
    /// Pending messages; more than [`COUNTED`] means that many or more.
    pub pending: i64,
    /// Age in seconds of the oldest message that is ready.
    pub oldest_seconds: Option<f64>,
    /// Seconds until the first waiting message is due; negative if it is.
    pub due_in: Option<f64>,
    /// No relay that lives can deliver it: its topic has no route, or there is no such endpoint.
    pub unrouted: bool,
}

/// Dead letters of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct DeadStatus {
    /// Where they were meant to go.
    pub endpoint: String,
    /// Why they died.
    pub reason: String,
    /// How many among the newest [`COUNTED`].
    pub count: i64,
    /// Age in seconds of the newest.
    pub newest_seconds: f64,
}

impl Store {
    /// Reads how everything stands.
    pub async fn status(&self) -> Result<Status, Error> {
        self.status_counting(COUNTED).await
    }

    /// The same, with pending messages and dead letters counted up to this number.
    pub async fn status_counting(&self, most: i32) -> Result<Status, Error> {
        let schema_version = self.version().await?.unwrap_or(0);
        let relays = self.call(sql::STATUS_RELAYS, &[]).await?;
        let endpoints = self.call(sql::STATUS_ENDPOINTS, &[]).await?;
        let lanes = self.call(sql::STATUS_LANES, &[(&most, Type::INT4)]).await?;
        let dead = self
            .call(sql::STATUS_DEAD_LETTERS, &[(&most, Type::INT4)])
            .await?;
        let mut relays: Vec<RelayStatus> = relays
            .iter()
            .map(|row| RelayStatus {
                relay: row.get("relay"),
                name: row.get("name"),
                version: row.get("version"),
                config_digest: row.get("config_digest"),
                config_differs: false,
                up_seconds: row.get("up_seconds"),
                beat_seconds: row.get("beat_seconds"),
                lease_seconds: row.get("lease_seconds"),
                leased: row.get("leased"),
                keeps_bell: row.get("keeps_bell"),
            })
            .collect();
        let alerts = self.alerts().await?;
        Ok(Status {
            schema_version,
            alerts,
            configs_differ: mark(&mut relays),
            relays,
            endpoints: endpoints
                .iter()
                .map(|row| EndpointStatus {
                    endpoint: row.get("endpoint"),
                    paused_seconds: row.get("paused_seconds"),
                    paused_by: row.get("paused_by"),
                    pause_reason: row.get("pause_reason"),
                    closed_for: row.get("closed_for"),
                    breaker: row.get("breaker"),
                    open_for: row.get("open_for"),
                    leased: row.get("leased"),
                    change: row.get("change"),
                    changed_seconds: row.get("changed_seconds"),
                    changed_by: row.get("changed_by"),
                    change_reason: row.get("change_reason"),
                })
                .collect(),
            lanes: lanes
                .iter()
                .map(|row| LaneStatus {
                    topic: row.get("topic"),
                    endpoint: row.get("endpoint"),
                    leads_to: row.get("leads_to"),
                    pending: row.get("pending"),
                    oldest_seconds: row.get("oldest_seconds"),
                    due_in: row.get("due_in"),
                    unrouted: row.get("unrouted"),
                })
                .collect(),
            dead_letters: dead
                .iter()
                .map(|row| DeadStatus {
                    endpoint: row.get("endpoint"),
                    reason: row.get("reason"),
                    count: row.get("count"),
                    newest_seconds: row.get("newest_seconds"),
                })
                .collect(),
        })
    }

    /// How long ago the oldest snapshot was taken that keeps what was delivered since from being vacuumed.
    pub async fn horizon(&self) -> Result<Duration, Error> {
        let row = self.one(sql::HORIZON, &[]).await?;
        Ok(Duration::try_from_secs_f64(row.get("seconds")).unwrap_or_default())
    }

    /// The lane with the message that has been due for the longest, of those that could be delivered, and for how long. Where that is not to
    /// be had within a second, it fails.
    pub async fn oldest_due(&self, waiting: &[Waiting]) -> Result<Option<(Lane, Duration)>, Error> {
        let topics: Vec<&str> = waiting.iter().map(|w| w.lane.topic.as_str()).collect();
        let lanes: Vec<&str> = waiting.iter().map(|w| w.lane.endpoint.as_str()).collect();
        let leads_to: Vec<&str> = waiting.iter().map(|w| w.leads_to.as_str()).collect();
        let in_order: Vec<bool> = waiting.iter().map(|w| w.in_order).collect();
        let parameters: [Parameter<'_>; 4] = [
            (&topics, Type::TEXT_ARRAY),
            (&lanes, Type::TEXT_ARRAY),
            (&leads_to, Type::TEXT_ARRAY),
            (&in_order, Type::BOOL_ARRAY),
        ];
        let both = self.call_both((sql::BRIEFLY, &[]), Some((sql::OLDEST_DUE, &parameters)));
        let row = both.await?.1.pop();
        Ok(row.map(|row| {
            let lane = Lane {
                topic: row.get("topic"),
                endpoint: row.get("endpoint"),
            };
            let seconds: f64 = row.get("seconds");
            let age = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
            (lane, age)
        }))
    }
}

// === impl RelayStatus ===

impl RelayStatus {
    /// It has not renewed its leases in time: it is stopping, or dead.
    pub fn is_late(&self) -> bool {
        self.beat_seconds > self.lease_seconds
    }
}

/// Marks the relays whose configuration is not that of the others. Returns whether there are any.
fn mark(relays: &mut [RelayStatus]) -> bool {
    let mut digests: HashMap<&str, (usize, f64)> = HashMap::new();
    for relay in relays.iter().filter(|relay| !relay.is_late()) {
        let (count, youngest) = digests
            .entry(&relay.config_digest)
            .or_insert((0, f64::INFINITY));
        *count += 1;
        *youngest = youngest.min(relay.up_seconds);
    }
    let common = digests
        .into_iter()
        .min_by(|(_, a), (_, b)| Reverse(a.0).cmp(&Reverse(b.0)).then(a.1.total_cmp(&b.1)));
    let Some(common) = common.map(|(digest, _)| digest.to_owned()) else {
        return false;
    };
    let mut differ = false;
    for relay in relays.iter_mut().filter(|relay| !relay.is_late()) {
        relay.config_differs = relay.config_digest != common;
        differ |= relay.config_differs;
    }
    differ
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(config_digest: &str, up_seconds: f64, beat_seconds: f64) -> RelayStatus {
        RelayStatus {
            relay: Uuid::nil(),
            name: String::new(),
            version: String::new(),
            config_digest: config_digest.into(),
            config_differs: false,
            up_seconds,
            beat_seconds,
            lease_seconds: 15.0,
            leased: 0,
            keeps_bell: false,
        }
    }

    #[test]
    fn a_relay_that_differs_from_most_or_from_the_newest_is_marked() {
        type Relays<'a> = &'a [(&'a str, f64, f64)];
        let table: [(Relays<'_>, &[bool]); 6] = [
            (&[], &[]),
            (&[("a", 9.0, 1.0)], &[false]),
            (&[("a", 9.0, 1.0), ("a", 1.0, 1.0)], &[false, false]),
            (&[("a", 9.0, 1.0), ("b", 1.0, 1.0)], &[true, false]),
            (
                &[("a", 9.0, 1.0), ("a", 8.0, 1.0), ("b", 1.0, 1.0)],
                &[false, false, true],
            ),
            // One that is dead runs nothing.
            (&[("a", 9.0, 60.0), ("b", 1.0, 1.0)], &[false, false]),
        ];
        for (relays, want) in table {
            let mut relays: Vec<_> = relays.iter().map(|(d, u, b)| relay(d, *u, *b)).collect();
            assert_eq!(mark(&mut relays), want.contains(&true));
            let marked: Vec<bool> = relays.iter().map(|relay| relay.config_differs).collect();
            assert_eq!(marked, want);
        }
    }
}
