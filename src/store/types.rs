//! What goes into statements and comes out of them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use jiff::{Timestamp, fmt::temporal::DateTimePrinter};
use tokio::time::Instant;
use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};
use uuid::Uuid;

use super::Error;
use crate::{
    message::{Delivery, Lane, Lease, Outcome, Settlement},
    saga::Step,
};

/// A lane, and where it leads, for those who ask why something is not delivered.
#[derive(Clone, Debug)]
pub struct Way {
    /// Which one.
    pub lane: Lane,
    /// The endpoints that its messages go to.
    pub leads_to: Vec<String>,
    /// Whether its keys keep their order.
    pub in_order: bool,
}

/// Under what a relay acts.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its identity, new at each registration.
    pub relay: Uuid,
    /// Raised by [`super::Store::recover`]; claims of an older session do nothing.
    pub session: i32,
    /// What the floors and lease numbers in memory belong to.
    pub epoch: Uuid,
}

/// Where the scans of a claim start. The default is a full sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors {
    /// Fresh rows: the last `seq` that was dealt with.
    pub ready: i64,
    /// Waiting rows: due time and `seq` of the last one that was dealt with (many rows may share a due time). Opaque: the
    /// database's clock, only ever given back to it.
    pub waiting: Option<(SystemTime, i64)>,
    /// The oldest lease of the lane that lives.
    pub lease: i64,
}

/// What to take.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// From where.
    pub lane: &'a Lane,
    /// For which endpoint.
    pub endpoint: &'a str,
    /// Whether the rows of one key keep their order.
    pub in_order: bool,
    /// Whether a row that dies closes its key.
    pub hold: bool,
    /// Messages at most.
    pub limit: i32,
    /// Bytes of payload at most; one message is taken whatever its size.
    pub bytes: i64,
    /// Rows of one key at most.
    pub chain: i32,
    /// Where to start.
    pub floors: Floors,
    /// Keys that a settle opened since the last claim.
    pub open_keys: &'a [String],
    /// What holds for the endpoint over all relays together.
    pub shared: Shared,
}

/// What a claim needs to know of the limits that all relays share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shared {
    /// Messages on their way to the endpoint at once.
    pub max_in_flight: Option<i32>,
    /// So many while its breaker is half open; `None` = this relay has no breaker for it, and none binds it.
    pub probes: Option<i32>,
    /// For so many seconds after it closed the number in flight grows,
    pub ramp: f64,
    /// ... to this.
    pub ramp_to: i32,
    /// The oldest lease of the endpoint that lives.
    pub floor: i64,
}

/// How the circuit breaker of an endpoint stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// All is well.
    #[default]
    Closed,
    /// Closed, with failures in its window: successes are worth telling.
    Watched,
    /// A few probes are let through.
    HalfOpen,
    /// Nothing is let through.
    Open,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// There is a lease.
    Claimed,
    /// Nothing was to be had above the floors.
    Empty,
    /// Another relay claims there just now.
    Busy,
    /// The endpoint is paused.
    Paused,
    /// The endpoint asked to be left alone for a while.
    NotBefore,
    /// The endpoint's breaker is open.
    Open,
    /// As many messages are on their way to the endpoint as may be, over all relays.
    Saturated,
    /// The row of the lane or of the endpoint is not there.
    Missing,
    /// This relay was reaped.
    RelayGone,
    /// This claim belongs to a session that was given up.
    OtherSession,
    /// The database crashed or another one took over: what this relay remembers is void.
    OtherEpoch,
}

/// What a claim brought.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// How it ended.
    pub state: ClaimState,
    /// Something was taken.
    pub brought: bool,
    /// What may be delivered now.
    pub lease: Option<Lease>,
    /// Its messages, in the order of `seq`. One that is not among them is gone.
    pub deliveries: Vec<Delivery>,
    /// Where the next claim of the lane starts; `None` where the claim did not get to look.
    pub floors: Option<Floors>,
    /// Nothing more was found above the floors.
    pub dry: bool,
    /// Until the lane has something due, or the endpoint may be asked again.
    pub next_due: Option<Duration>,
    /// Open keys that the limits left behind: to be named again.
    pub left_keys: Vec<String>,
    /// Other relays have leases of the lane.
    pub others: bool,
    /// How the endpoint's breaker stands; `None` where the claim did not get to look.
    pub breaker: Option<BreakerState>,
    /// Where the endpoint's leases start; `None` where nobody had to look.
    pub endpoint_floor: Option<i64>,
}

/// A lane that holds rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Which one.
    pub lane: Lane,
    /// It holds rows without a due time (leased ones too).
    pub ready: bool,
    /// Until its first waiting row is due; zero if one is due already (leased ones too).
    pub due: Option<Duration>,
}

/// Another relay as it is seen from here.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its identity.
    pub relay: Uuid,
    /// Its name.
    pub name: String,
    /// Its last beat.
    pub beat: i64,
    /// How long its leases outlive it.
    pub lease: Duration,
}

/// One delivery to be settled.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The lease that it was delivered under.
    pub lease: i64,
    /// The message.
    pub id: Uuid,
    /// The place of the row that was sent.
    pub seq: i64,
    /// The life of the message that the lease was for.
    pub generation: i32,
    /// Where its row is.
    pub lane: Lane,
    /// Its ordering key.
    pub key: Option<String>,
    /// The destination.
    pub endpoint: Arc<str>,
    /// What follows.
    pub settlement: Settlement,
    /// Whether its death closes its key.
    pub hold: bool,
    /// The number of the attempt.
    pub attempt: i32,
    /// What the request came to; `None` where none was made.
    pub outcome: Option<Outcome>,
    /// When the request was started.
    pub started: Instant,
}

/// What a settle did.
#[derive(Clone, Debug)]
pub struct SettleReport {
    /// The messages that it applied to.
    pub settled: Vec<Uuid>,
    /// Why history and archive could not be written, if so.
    pub history_error: Option<String>,
    /// The lanes that next steps of sagas were put into.
    pub filled: Vec<Lane>,
}

/// What a reap did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// `false`: the relay lives, or somebody was faster.
    pub reaped: bool,
    /// Messages taken from it.
    pub lost: i32,
    /// Those of them that are dead now.
    pub dead: i32,
}

// === impl Floors, ClaimState ===

impl Floors {
    /// `None` where the caller did not get to look.
    pub(super) fn read(row: &Row) -> Option<Floors> {
        let waiting = || row.get::<_, Option<SystemTime>>("waiting_floor");
        row.get::<_, Option<i64>>("ready_floor")
            .map(|ready| Floors {
                ready,
                waiting: waiting().map(|due| (due, row.get("waiting_seq"))),
                lease: row.get("lease_floor"),
            })
    }
}

impl ClaimState {
    /// As `outbox.claim` says it.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimState::Claimed => "claimed",
            ClaimState::Empty => "empty",
            ClaimState::Busy => "busy",
            ClaimState::Paused => "paused",
            ClaimState::NotBefore => "not_before",
            ClaimState::Open => "open",
            ClaimState::Saturated => "saturated",
            ClaimState::Missing => "missing",
            ClaimState::RelayGone => "relay_gone",
            ClaimState::OtherSession => "other_session",
            ClaimState::OtherEpoch => "other_epoch",
        }
    }

    pub(super) fn read(text: &str, statement: &'static str) -> Result<ClaimState, Error> {
        Ok(match text {
            "claimed" => ClaimState::Claimed,
            "empty" => ClaimState::Empty,
            "busy" => ClaimState::Busy,
            "paused" => ClaimState::Paused,
            "not_before" => ClaimState::NotBefore,
            "open" => ClaimState::Open,
            "saturated" => ClaimState::Saturated,
            "missing" => ClaimState::Missing,
            "relay_gone" => ClaimState::RelayGone,
            "other_session" => ClaimState::OtherSession,
            "other_epoch" => ClaimState::OtherEpoch,
            other => {
                return Err(Error::Statement {
                    statement,
                    message: format!("answered with the unknown state {other:?}"),
                    state: None,
                });
            }
        })
    }
}

// === impl Claimed ===

impl Claimed {
    pub(super) fn read(row: &Row, loaded: &[Row], claim: &Claim<'_>) -> Result<Claimed, Error> {
        let state = ClaimState::read(row.get("state"), "claim")?;
        let lease = row.get::<_, Option<i64>>("lease").map(|id| Lease {
            id,
            lane: claim.lane.clone(),
            endpoint: claim.endpoint.to_owned(),
            ids: row.get("ids"),
        });
        Ok(Claimed {
            state,
            brought: lease.is_some(),
            deliveries: match &lease {
                Some(lease) => loaded
                    .iter()
                    .map(|row| delivery(row, lease))
                    .collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            lease,
            floors: Floors::read(row),
            dry: row.get::<_, Option<bool>>("dry").unwrap_or(false),
            next_due: row.get::<_, Option<f64>>("next_due_in").map(duration),
            left_keys: row
                .get::<_, Option<Vec<String>>>("left_keys")
                .unwrap_or_default(),
            others: row.get::<_, Option<bool>>("others").unwrap_or(false),
            breaker: row
                .get::<_, Option<&str>>("breaker")
                .map(BreakerState::read),
            endpoint_floor: row.get("endpoint_floor"),
        })
    }
}

// === impl BreakerState ===

impl BreakerState {
    pub(super) fn read(text: &str) -> BreakerState {
        match text {
            "open" => BreakerState::Open,
            "half_open" => BreakerState::HalfOpen,
            "watched" => BreakerState::Watched,
            _ => BreakerState::Closed,
        }
    }
}

// === impl Found, Peer ===

impl From<&Row> for Found {
    fn from(row: &Row) -> Found {
        Found {
            lane: Lane {
                topic: row.get("topic"),
                endpoint: row.get("endpoint"),
            },
            ready: row.get("ready"),
            due: row.get::<_, Option<f64>>("due_in").map(duration),
        }
    }
}

impl From<&Row> for Peer {
    fn from(row: &Row) -> Peer {
        Peer {
            relay: row.get("relay"),
            name: row.get("name"),
            beat: row.get("beat"),
            lease: duration(row.get("lease_seconds")),
        }
    }
}

/// Reads a row of `sql/load.sql`.
fn delivery(row: &Row, lease: &Lease) -> Result<Delivery, Error> {
    let payload = row.get::<_, Option<Json<'_>>>("payload").map(|json| json.0);
    let body = row.get::<_, Option<&[u8]>>("body");
    let default_type = match (payload, body) {
        (Some(_), _) => Some("application/json"),
        (None, Some(_)) => Some("application/octet-stream"),
        (None, None) => None,
    };
    let headers = match row.get::<_, Option<&str>>("headers") {
        None => Vec::new(),
        Some(text) => serde_json::from_str::<std::collections::BTreeMap<String, String>>(text)
            .map_err(|error| Error::Statement {
                statement: "load",
                message: format!("headers: {error}"),
                state: None,
            })?
            .into_iter()
            .collect(),
    };
    let step = match row.get::<_, Option<&str>>("step") {
        None => None,
        Some(text) => Some(Step::parse(text).map_err(|error| Error::Statement {
            statement: "load",
            message: format!("step: {error}"),
            state: None,
        })?),
    };
    let now: SystemTime = row.get("now");
    let step = step.map(|mut step| {
        let clock = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        if step.has_lapsed(clock.as_secs_f64()) {
            step.poll = None;
        }
        Arc::new(step)
    });
    let created_at: SystemTime = row.get("created_at");
    let since: SystemTime = row.get("since");
    let expires_at: Option<SystemTime> = row.get("expires_at");
    let count = |column| u32::try_from(row.get::<_, i32>(column)).unwrap_or(0);
    Ok(Delivery {
        lease: lease.id,
        lane_endpoint: lease.lane.endpoint.clone(),
        id: row.get("id"),
        topic: lease.lane.topic.clone(),
        key: row.get("key"),
        kind: row.get("type"),
        body: payload.or(body).map(Bytes::copy_from_slice),
        content_type: row
            .get::<_, Option<String>>("content_type")
            .filter(|_| default_type.is_some())
            .or_else(|| default_type.map(str::to_owned)),
        headers,
        seq: row.get("seq"),
        attempts: count("attempts"),
        lost: count("lost"),
        throttled: count("throttled"),
        generation: row.get("generation"),
        sent_to: row.get("sent_to"),
        step,
        created_at: rfc3339(created_at),
        age: now.duration_since(since).unwrap_or_default(),
        expires_in: expires_at.map(|at| at.duration_since(now).unwrap_or_default()),
    })
}

/// The stored bytes of a `json` value.
struct Json<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Json<'a> {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<Json<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Json(raw))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

/// With six digits of a second. Years that RFC 3339 can't write become the last or the first one.
fn rfc3339(time: SystemTime) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    let end = match time < SystemTime::UNIX_EPOCH {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    PRINTER.timestamp_to_string(&Timestamp::try_from(time).unwrap_or(end))
}

/// Seconds from the database as a duration: the past is zero, `infinity` is very long.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// How long ago something was, in seconds.
pub(super) fn seconds(now: Instant, then: Instant) -> f64 {
    now.saturating_duration_since(then).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_no_year_of_five() {
        let at = |seconds: i64, micros: u64| {
            let whole = Duration::from_secs(seconds.unsigned_abs());
            let time = match seconds < 0 {
                true => SystemTime::UNIX_EPOCH - whole,
                false => SystemTime::UNIX_EPOCH + whole,
            };
            rfc3339(time + Duration::from_micros(micros))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400, 907_280), "2000-02-29T00:00:00.907280Z");
        assert_eq!(at(-1, 1), "1969-12-31T23:59:59.000001Z");
        assert!(at(9_000_000_000_000, 0).starts_with("9999-12-30"));
        assert!(at(-1_000_000_000_000, 0).starts_with("-009999"));
    }
}
