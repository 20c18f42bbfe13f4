//! The PostgreSQL edge: one method per statement, and no state but a pool of connections.
//!
//! Model: each call is one transaction in one round trip. Begin, statement and commit are sent together (pipelined), so that
//! no transaction ever waits for us. Statements are unnamed and say their parameter types, so they work through a
//! pooler in transaction mode; nothing of a session is relied upon, `sql/begin.sql` says all that matters each time.
//! Authority: the database decides. What a lease, a beat or a generation allows is checked in SQL, under locks.
//! Failure: an error means that the outcome is unknown, since the commit may have been done before the connection broke. Each
//! statement can be sent again, except a claim, which is undone by [`Store::recover`].

mod alerts;
mod bell;
mod connect;
mod credentials;
mod endpoints;
mod error;
mod expand;
mod expiry;
mod find;
mod hosts;
mod identity;
mod look;
mod migrate;
mod overview;
mod records;
mod requests;
mod sagas;
mod schedules;
mod settle;
mod shape;
mod statements;
mod status;
mod tls;
mod types;
mod url;
mod verbs;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

pub use self::{
    alerts::{Alert, Notice, Told, Watch},
    bell::{Bell, Doorbell, Listener, Lock, Taken},
    connect::connections,
    error::Error,
    expand::{Expand, Expanded},
    expiry::{Expired, Expiry, Place},
    find::{Line, Listed, Search, State, Why},
    look::Seen,
    migrate::{Migrated, SCHEMA_VERSION, script},
    overview::{Alike, Failures, Overview, Partly, Piece},
    records::{History, Partitions, Records, Retention},
    requests::{Accepted, Requested, Sent, StartedSaga},
    sagas::{Acted, ListedSaga, MatchingSagas, Refused, SagaFilter, SagaVerb, Tended},
    shape::Alterations,
    statements::STATEMENTS,
    status::{COUNTED, DeadStatus, EndpointStatus, LaneStatus, RelayStatus, Status, Waiting},
    types::{
        BreakerState, Claim, ClaimState, Claimed, Floors, Found, Peer, Reaped, Registration,
        Settle, SettleReport, Shared, Way,
    },
    verbs::{Filter, Job, Mandate, Matching, Progress, Verb},
};
use self::{
    connect::{Connector, Object, Pool},
    statements as sql,
};

/// Where the database is.
#[derive(Clone, PartialEq)]
pub struct Config {
    /// A libpq URL or key-value string, password included: never printed.
    pub url: String,
    /// The file that the URL was read from, if so: new connections take the credentials that it holds then.
    pub url_file: Option<PathBuf>,
    /// PEM file with the authorities that the server's certificate may come from; `None` = those of the URL, or the system's.
    pub ca_file: Option<PathBuf>,
    /// A schema that was altered since it was migrated is warned of and used, not refused.
    pub lenient: bool,
    /// The word that `outbox.meta` must hold where it holds one: tells a physical clone from the original.
    pub guard: Option<String>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &"…")
            .field("guard", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}

/// No statement of ours takes as long; the server gives up first (`statement_timeout` in `sql/begin.sql`).
pub const PATIENCE: Duration = Duration::from_secs(35);

/// Whoever uses a store makes one call at a time, mostly; the second is for who comes beside it.
const CONNECTIONS: usize = 2;

/// The database.
#[derive(Clone)]
pub struct Store {
    pool: Pool,
    place: Arc<str>,
    guard: Option<String>,
    lenient: bool,
    patience: Duration,
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

// === impl Store ===

impl Store {
    /// Prepares connections, which are made when they are needed and again when they broke.
    pub fn new(config: &Config) -> Result<Store, Error> {
        Store::with(config, CONNECTIONS, PATIENCE)
    }

    /// A single connection, with this patience: a relay has one for its claims, one for its settles and one for its beats.
    pub fn single(config: &Config, patience: Duration) -> Result<Store, Error> {
        Store::with(config, 1, patience)
    }

    /// Makes a connection now, so that it is there when it is needed.
    pub async fn connect(&self) -> Result<(), Error> {
        self.client().await.map(drop)
    }

    /// Closes the connections that nobody uses; the next call makes another one.
    pub fn disconnect(&self) {
        drop(self.pool.retain(|_, _| false));
    }

    fn with(config: &Config, connections: usize, patience: Duration) -> Result<Store, Error> {
        let connector = Connector::new(config)?;
        let place = connector.place();
        let pool = Pool::builder(connector)
            .max_size(connections)
            .build()
            .map_err(|error| Error::Config(error.to_string()))?;
        Ok(Store {
            pool,
            place,
            guard: config.guard.clone(),
            lenient: config.lenient,
            patience,
        })
    }

    /// Makes a relay known under a new identity.
    pub async fn register(
        &self,
        name: &str,
        digest: &str,
        lease: Duration,
    ) -> Result<Registration, Error> {
        let version = env!("CARGO_PKG_VERSION");
        let row = self
            .one(
                sql::REGISTER,
                &[
                    (&name, Type::TEXT),
                    (&version, Type::TEXT),
                    (&digest, Type::TEXT),
                    (&lease.as_secs_f64(), Type::FLOAT8),
                ],
            )
            .await?;
        Ok(Registration {
            relay: row.get("relay"),
            session: row.get("session"),
            epoch: row.get("epoch"),
        })
    }

    /// Says that a relay runs another configuration now.
    pub async fn set_digest(&self, relay: Uuid, digest: &str) -> Result<(), Error> {
        let parameters: [Parameter<'_>; 2] = [(&relay, Type::UUID), (&digest, Type::TEXT)];
        self.call(sql::SET_DIGEST, &parameters).await.map(drop)
    }

    /// Makes the rows that claims for these endpoints lock, and says how long a request to each may take.
    pub async fn add_endpoints(&self, endpoints: &[(&str, Duration)]) -> Result<(), Error> {
        let (names, timeouts): (Vec<&str>, Vec<f64>) = endpoints
            .iter()
            .map(|(name, timeout)| (*name, timeout.as_secs_f64()))
            .unzip();
        let parameters: [Parameter<'_>; 2] =
            [(&names, Type::TEXT_ARRAY), (&timeouts, Type::FLOAT8_ARRAY)];
        self.call(sql::ADD_ENDPOINTS, &parameters).await.map(drop)
    }

    /// Makes the rows that claims of these lanes lock, and says where they lead.
    pub async fn add_lanes(&self, ways: &[Way]) -> Result<(), Error> {
        let topics: Vec<&str> = ways.iter().map(|way| way.lane.topic.as_str()).collect();
        let endpoints: Vec<&str> = ways.iter().map(|way| way.lane.endpoint.as_str()).collect();
        let leads_to: Vec<String> = ways
            .iter()
            .map(|way| serde_json::json!(way.leads_to).to_string())
            .collect();
        let in_order: Vec<bool> = ways.iter().map(|way| way.in_order).collect();
        let parameters: [Parameter<'_>; 4] = [
            (&topics, Type::TEXT_ARRAY),
            (&endpoints, Type::TEXT_ARRAY),
            (&leads_to, Type::TEXT_ARRAY),
            (&in_order, Type::BOOL_ARRAY),
        ];
        self.call(sql::ADD_LANES, &parameters).await.map(drop)
    }

    /// Takes due rows of one lane under a new lease, and reads what their attempts need, in one round trip. After an error the
    /// relay may hold a lease that it doesn't know of: see [`Store::recover`].
    pub async fn claim(&self, me: &Registration, claim: &Claim<'_>) -> Result<Claimed, Error> {
        let floors = &claim.floors;
        let parameters: &[Parameter<'_>] = &[
            (&me.relay, Type::UUID),
            (&me.session, Type::INT4),
            (&me.epoch, Type::UUID),
            (&claim.lane.topic, Type::TEXT),
            (&claim.lane.endpoint, Type::TEXT),
            (&claim.endpoint, Type::TEXT),
            (&claim.in_order, Type::BOOL),
            (&claim.hold, Type::BOOL),
            (&claim.limit, Type::INT4),
            (&claim.bytes, Type::INT8),
            (&claim.chain, Type::INT4),
            (&floors.ready, Type::INT8),
            (&floors.waiting.map(|(due, _)| due), Type::TIMESTAMPTZ),
            (&floors.waiting.map_or(0, |(_, seq)| seq), Type::INT8),
            (&floors.lease, Type::INT8),
            (&claim.open_keys, Type::TEXT_ARRAY),
            (&claim.shared.max_in_flight, Type::INT4),
            (&claim.shared.probes, Type::INT4),
            (&claim.shared.ramp, Type::FLOAT8),
            (&claim.shared.ramp_to, Type::INT4),
            (&claim.shared.floor, Type::INT8),
        ];
        let load: &[Parameter<'_>] = &[(&me.relay, Type::UUID), (&claim.lane.endpoint, Type::TEXT)];
        let both = self.call_both((sql::CLAIM, parameters), Some((sql::LOAD, load)));
        let (mut rows, loaded) = both.await?;
        let row = one(sql::CLAIM, rows.pop())?;
        Claimed::read(&row, &loaded, claim)
    }

    /// Gives back every lease of this relay that is not among `known`, and makes claims that are still on their way void.
    /// Returns the new session; `None` if the relay was reaped.
    pub async fn recover(&self, relay: Uuid, known: &[i64]) -> Result<Option<i32>, Error> {
        let row = self
            .one(
                sql::RECOVER,
                &[(&relay, Type::UUID), (&known, Type::INT8_ARRAY)],
            )
            .await?;
        Ok(row.get("session"))
    }

    /// Ends a relay and gives back all that it holds.
    pub async fn deregister(&self, relay: Uuid) -> Result<(), Error> {
        self.call(sql::DEREGISTER, &[(&relay, Type::UUID)])
            .await
            .map(drop)
    }

    /// The beat that keeps all leases of this relay: its new number, and the beats of all other relays as they were just
    /// before. `None` if the relay was reaped.
    pub async fn beat(&self, relay: Uuid) -> Result<Option<(i64, Vec<Peer>)>, Error> {
        let rows = self.call(sql::BEAT, &[(&relay, Type::UUID)]).await?;
        let mine = rows
            .first()
            .and_then(|row| row.get::<_, Option<i64>>("mine"));
        let others = rows
            .iter()
            .filter(|row| row.get::<_, Option<Uuid>>("relay").is_some());
        Ok(mine.map(|beat| (beat, others.map(Peer::from).collect())))
    }

    /// Takes everything from a relay that was seen dead at `beat`.
    pub async fn reap(&self, relay: Uuid, beat: i64, max_lost: u32) -> Result<Reaped, Error> {
        let max_lost = i32::try_from(max_lost).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql::REAP,
                &[
                    (&relay, Type::UUID),
                    (&beat, Type::INT8),
                    (&max_lost, Type::INT4),
                ],
            )
            .await?;
        Ok(Reaped {
            reaped: row.get("reaped"),
            lost: row.get("lost"),
            dead: row.get("dead"),
        })
    }

    /// Makes the partitions of the next `days`, and drops and thins what is past retention. To be called again while it thins.
    pub async fn maintain_partitions(
        &self,
        days: i32,
        keep: &Retention,
    ) -> Result<Partitions, Error> {
        let row = self
            .one(
                sql::MAINTAIN_PARTITIONS,
                &[
                    (&days, Type::INT4),
                    (&keep.attempts.as_secs_f64(), Type::FLOAT8),
                    (&keep.delivered.as_secs_f64(), Type::FLOAT8),
                ],
            )
            .await?;
        // In a transaction of its own: it may fail.
        let successes = keep.successes.as_secs_f64();
        let thin = self
            .one(sql::THIN_PARTITIONS, &[(&successes, Type::FLOAT8)])
            .await?;
        Ok(Partitions {
            made: row.get("made"),
            dropped: row.get("dropped"),
            thinned: thin.get("thinned"),
        })
    }

    /// Runs one statement in a transaction of its own, in one round trip.
    async fn call(
        &self,
        statement: sql::Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let rows = self.call_both((statement, parameters), None).await?;
        Ok(rows.0)
    }

    /// Runs a statement and the one that follows it in a transaction of their own, in one round trip.
    async fn call_both(
        &self,
        (statement, parameters): (sql::Statement, &[Parameter<'_>]),
        next: Option<(sql::Statement, &[Parameter<'_>])>,
    ) -> Result<(Vec<Row>, Vec<Row>), Error> {
        let sql::Statement { name, text } = statement;
        let client = self.client().await?;
        let done = tokio::time::timeout(self.patience, async {
            tokio::join!(
                biased;
                client.batch_execute(sql::BEGIN),
                client.query_typed(text, parameters),
                async {
                    match next {
                        Some((next, parameters)) => client.query_typed(next.text, parameters).await,
                        None => Ok(Vec::new()),
                    }
                },
                client.batch_execute("COMMIT"),
            )
        })
        .await;
        let Ok((begun, rows, next_rows, committed)) = done else {
            // An answer may still come: this connection must not serve anybody else.
            drop(Object::take(client));
            return Err(Error::Timeout {
                statement: name,
                after: self.patience,
                place: Arc::clone(&self.place),
            });
        };
        let failed = |name, begins, error| Error::failed(name, &self.place, begins, &error);
        let next_name = next.map_or(name, |(next, _)| next.name);
        let done = begun
            .map_err(|error| failed(name, true, error))
            .and_then(|()| {
                let rows = rows.map_err(|error| failed(name, false, error))?;
                let next_rows = next_rows.map_err(|error| failed(next_name, false, error))?;
                committed.map_err(|error| failed(name, false, error))?;
                Ok((rows, next_rows))
            });
        if let Err(Error::Standby { .. }) = done {
            // The address may lead to the primary by now: only a new connection finds out.
            drop(Object::take(client));
        }
        done
    }

    async fn one(
        &self,
        statement: sql::Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, Error> {
        one(statement, self.call(statement, parameters).await?.pop())
    }

    async fn client(&self) -> Result<Object, Error> {
        match tokio::time::timeout(self.patience, self.pool.get()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(connect::explain_pool(&self.place, error)),
            Err(_) => Err(Error::Connect(format!(
                "{}: no connection within {} s",
                self.place,
                self.patience.as_secs()
            ))),
        }
    }
}

fn one(statement: sql::Statement, row: Option<Row>) -> Result<Row, Error> {
    row.ok_or(Error::Statement {
        statement: statement.name,
        message: "returned no row".into(),
        state: None,
    })
}
