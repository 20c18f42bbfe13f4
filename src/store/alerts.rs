//! What is wrong, as the database knows it for all relays. See `sql/functions/watch.sql`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Parameter, Store, find, sql};

/// What is looked for; `None`: this kind of alert is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// How often one relay looks.
    pub every: Duration,
    /// After so long an alert that goes on is told again.
    pub repeat: Duration,
    /// How long failures and deaths count.
    pub window: Duration,
    /// Share of an endpoint's attempts that fail, and how many attempts there must be at least.
    pub failures: Option<(f64, i32)>,
    /// Messages for one endpoint that died.
    pub dead_letters: Option<i32>,
    /// How long a message has been due.
    pub oldest_due: Option<Duration>,
    /// How long an endpoint has been paused.
    pub paused: Option<Duration>,
    /// How long a message has waited that no relay can deliver.
    pub no_route: Option<Duration>,
    /// Sagas of one name that are parked.
    pub sagas: Option<i32>,
    /// Notices are left for a webhook.
    pub webhook: bool,
    /// Messages of this topic are inserted.
    pub topic: Option<String>,
}

/// Somebody is to be told.
#[derive(Clone, Debug, Deserialize)]
pub struct Told {
    /// Its identity.
    pub id: Uuid,
    /// `failures`, `dead_letters`, `oldest_due`, `paused`, `no_route` or `sagas`.
    pub kind: String,
    /// The endpoint, the topic, or the saga's name.
    pub subject: String,
    /// `firing`, `reminder` or `recovered`.
    pub state: String,
    /// Since when it has been wrong.
    pub since: String,
    /// The database's name.
    pub database: String,
    /// A sentence with the figures.
    pub summary: String,
    /// What to run next.
    pub command: String,
}

/// A notice that a relay has taken to send it.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Its identity.
    pub notice: Uuid,
    /// Which attempt this is, from 1.
    pub attempts: i32,
    /// How long ago it was made.
    pub age: Duration,
    /// The JSON object that says all of it.
    pub content: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Alert {
    /// `failures`, `dead_letters`, `oldest_due`, `paused`, `no_route` or `sagas`.
    pub kind: String,
    /// The endpoint, the topic, or the saga's name.
    pub subject: String,
    /// Since when.
    pub since: String,
    /// The same in seconds.
    pub seconds: f64,
    /// A sentence with the figures.
    pub summary: String,
    /// What to run next.
    pub command: String,
    /// The figures.
    pub details: Value,
    /// How long ago somebody looked last: no relay does any more, if this is long.
    pub looked_seconds: Option<f64>,
}

impl Store {
    /// Looks for what is wrong, unless another relay does or did just now. Returns what is new.
    pub async fn watch(&self, watch: &Watch) -> Result<Vec<Told>, Error> {
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        let parameters: [Parameter<'_>; 12] = [
            (&watch.every.as_secs_f64(), Type::FLOAT8),
            (&watch.repeat.as_secs_f64(), Type::FLOAT8),
            (&watch.window.as_secs_f64(), Type::FLOAT8),
            (&watch.failures.map(|(ratio, _)| ratio), Type::FLOAT8),
            (&watch.failures.map(|(_, minimum)| minimum), Type::INT4),
            (&watch.dead_letters, Type::INT4),
            (&seconds(watch.oldest_due), Type::FLOAT8),
            (&seconds(watch.paused), Type::FLOAT8),
            (&seconds(watch.no_route), Type::FLOAT8),
            (&watch.sagas, Type::INT4),
            (&watch.webhook, Type::BOOL),
            (&watch.topic, Type::TEXT),
        ];
        let rows = self.call(sql::WATCH, &parameters).await?;
        find::read_from(sql::WATCH, "content", &rows)
    }

    /// Takes a notice to send it; no other relay does for so long.
    pub async fn take_notice(&self, lease: Duration) -> Result<Option<Notice>, Error> {
        let lease = lease.as_secs_f64();
        let rows = self
            .call(sql::TAKE_NOTICE, &[(&lease, Type::FLOAT8)])
            .await?;
        Ok(rows.first().map(|row| Notice {
            notice: row.get("notice"),
            attempts: row.get("attempts"),
            age: Duration::try_from_secs_f64(row.get("age")).unwrap_or_default(),
            content: row.get("content"),
        }))
    }

    /// A notice was sent, or is given up.
    pub async fn remove_notice(&self, notice: Uuid) -> Result<(), Error> {
        self.call(sql::REMOVE_NOTICE, &[(&notice, Type::UUID)])
            .await
            .map(drop)
    }

    /// A notice is to be tried again after this, unless another relay has taken it.
    pub async fn postpone_notice(&self, notice: &Notice, delay: Duration) -> Result<(), Error> {
        let parameters: [Parameter<'_>; 3] = [
            (&notice.notice, Type::UUID),
            (&notice.attempts, Type::INT4),
            (&delay.as_secs_f64(), Type::FLOAT8),
        ];
        self.call(sql::POSTPONE_NOTICE, &parameters).await.map(drop)
    }

    /// All that is wrong, as whoever looked last saw it.
    pub async fn alerts(&self) -> Result<Vec<Alert>, Error> {
        find::read(sql::ALERTS, &self.call(sql::ALERTS, &[]).await?)
    }
}
