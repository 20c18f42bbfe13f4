//! What operators do to messages. The functions in `sql/functions` of the same names say what each means.

use serde::{Deserialize, Serialize};
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Error, Parameter, Store, find, sql};

/// Which dead or delivered messages are meant; `None` lets all pass, and all that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// The topic, whole or with a `*` at its end.
    pub topic: Option<String>,
    /// The destination.
    pub endpoint: Option<String>,
    /// The ordering key.
    pub key: Option<String>,
    /// Why it died.
    pub reason: Option<String>,
    /// The HTTP status of its last answer.
    pub status: Option<i32>,
    /// A part of its last error, in upper or lower case.
    pub error: Option<String>,
    /// When it died or was delivered: a time as PostgreSQL reads it, or a length of time before now: `2h`, `ago 90 s`.
    pub since: Option<String>,
    /// Not after, in the same form.
    pub until: Option<String>,
}

/// Who does something, and why: both are kept in the history of a message or saga, or with an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mandate<'a> {
    /// `None` = the database's user.
    pub by: Option<&'a str>,
    /// The reason.
    pub why: Option<&'a str>,
}

/// What becomes of the messages that a [`Filter`] means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verb {
    /// They are sent again.
    Replay {
        /// From the archive, not from the dead letters.
        delivered: bool,
        /// Under new ids: to their receivers they are other messages.
        new_key: bool,
        /// Messages in a second, at most.
        rate: Option<f64>,
    },
    /// Dead letters are removed for good.
    Discard,
}

/// Messages of one kind that a filter means.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Matching {
    /// The destination.
    pub endpoint: String,
    /// The topic.
    pub topic: String,
    /// Why they died; `None`: they were delivered.
    pub reason: Option<String>,
    /// How many.
    pub messages: i64,
    /// Bytes of their payloads.
    pub bytes: i64,
    /// When the oldest of them died or was delivered.
    pub oldest: String,
    /// The newest.
    pub newest: String,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// `running`, `busy` (somebody else is at it), `done`, `aborted`, or `missing`: there is no such job.
    pub state: String,
    /// Messages that were replayed or discarded.
    pub done: i64,
    /// Messages that were not, because they are pending already, or are not any more what they were.
    pub pending: i64,
    /// Seconds until its rate lets it go on.
    pub wait: f64,
}

/// A replay or discard of many messages.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Job {
    /// Its number.
    pub job: i64,
    /// When it began.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// `replay` or `discard`.
    pub verb: String,
    /// `dead` or `delivered`.
    pub source: String,
    /// Of the filter: see [`Filter`].
    pub topic: Option<String>,
    /// Of the filter.
    pub endpoint: Option<String>,
    /// Of the filter.
    pub key: Option<String>,
    /// Of the filter.
    pub reason: Option<String>,
    /// Of the filter.
    pub status: Option<i32>,
    /// Of the filter.
    pub error: Option<String>,
    /// Of the filter; `-infinity` = from the beginning.
    pub since: String,
    /// Of the filter; never later than `created_at`.
    pub until: String,
    /// Under new ids.
    pub new_key: bool,
    /// Messages in a second, at most.
    pub rate: Option<f64>,
    /// `running`, `done` or `aborted`.
    pub state: String,
    /// Messages that were replayed or discarded.
    pub done: i64,
    /// Messages that were not, because they are pending already.
    pub pending: i64,
    /// When it last got on.
    pub moved_at: String,
    /// Who began it.
    pub started_by: String,
    /// Why.
    pub why: Option<String>,
}

impl Store {
    /// Takes a pending message back. Returns how many of its rows were removed, and how many are on their way.
    pub async fn cancel(&self, id: Uuid, mandate: Mandate<'_>) -> Result<(i32, i32), Error> {
        let row = self
            .one(
                sql::CANCEL,
                &[
                    (&id, Type::UUID),
                    (&mandate.why, Type::TEXT),
                    (&mandate.by, Type::TEXT),
                ],
            )
            .await?;
        Ok((row.get("cancelled"), row.get("in_flight")))
    }

    /// Sends a message again that is dead, or one that was `delivered`, to one endpoint or to all that it went to. Returns the ids that
    /// are pending now, and how many were pending already.
    pub async fn replay(
        &self,
        id: Uuid,
        endpoint: Option<&str>,
        delivered: bool,
        new_key: bool,
        mandate: Mandate<'_>,
    ) -> Result<(Vec<Uuid>, i32), Error> {
        let row = self
            .one(
                sql::REPLAY,
                &[
                    (&id, Type::UUID),
                    (&endpoint, Type::TEXT),
                    (&delivered, Type::BOOL),
                    (&new_key, Type::BOOL),
                    (&mandate.why, Type::TEXT),
                    (&mandate.by, Type::TEXT),
                ],
            )
            .await?;
        Ok((row.get("ids"), row.get("pending")))
    }

    /// Removes the dead letters of a message for good. Returns how many there were.
    pub async fn discard(
        &self,
        id: Uuid,
        endpoint: Option<&str>,
        mandate: Mandate<'_>,
    ) -> Result<i32, Error> {
        let row = self
            .one(
                sql::DISCARD,
                &[
                    (&id, Type::UUID),
                    (&endpoint, Type::TEXT),
                    (&mandate.why, Type::TEXT),
                    (&mandate.by, Type::TEXT),
                ],
            )
            .await?;
        Ok(row.get("discarded"))
    }

    /// Opens an ordering key that a dead message holds, at one endpoint or at all. Returns how many holds there were.
    pub async fn release_key(
        &self,
        topic: &str,
        key: &str,
        endpoint: Option<&str>,
        mandate: Mandate<'_>,
    ) -> Result<i32, Error> {
        let row = self
            .one(
                sql::RELEASE_KEY,
                &[
                    (&topic, Type::TEXT),
                    (&key, Type::TEXT),
                    (&endpoint, Type::TEXT),
                    (&mandate.why, Type::TEXT),
                    (&mandate.by, Type::TEXT),
                ],
            )
            .await?;
        Ok(row.get("opened"))
    }

    /// What a verb would meet.
    pub async fn matching(&self, verb: Verb, filter: &Filter) -> Result<Vec<Matching>, Error> {
        let source = verb.source();
        let mut parameters: Vec<Parameter<'_>> = vec![(&source, Type::TEXT)];
        parameters.extend(filter.parameters());
        find::read(sql::MATCHING, &self.call(sql::MATCHING, &parameters).await?)
    }

    /// Begins a verb on all that a filter means, and returns the job's number: [`Store::run_job`] does it.
    /// Somebody sees it through, or relays do (`unattended`).
    pub async fn start_job(
        &self,
        verb: Verb,
        filter: &Filter,
        mandate: Mandate<'_>,
        unattended: bool,
    ) -> Result<i64, Error> {
        let source = verb.source();
        let name = verb.as_str();
        let (new_key, rate) = match verb {
            Verb::Replay { new_key, rate, .. } => (new_key, rate),
            Verb::Discard => (false, None),
        };
        let mut parameters: Vec<Parameter<'_>> = vec![(&name, Type::TEXT), (&source, Type::TEXT)];
        parameters.extend(filter.parameters());
        let rest: [Parameter<'_>; 5] = [
            (&new_key, Type::BOOL),
            (&rate, Type::FLOAT8),
            (&mandate.why, Type::TEXT),
            (&mandate.by, Type::TEXT),
            (&unattended, Type::BOOL),
        ];
        parameters.extend(rest);
        Ok(self.one(sql::START_JOB, &parameters).await?.get("job"))
    }

    /// Does a piece of a job, of so many messages at most.
    pub async fn run_job(&self, job: i64, limit: i32) -> Result<Progress, Error> {
        let row = self
            .one(sql::RUN_JOB, &[(&job, Type::INT8), (&limit, Type::INT4)])
            .await?;
        Ok(Progress {
            state: row.get("state"),
            done: row.get::<_, Option<i64>>("done").unwrap_or_default(),
            pending: row.get::<_, Option<i64>>("pending").unwrap_or_default(),
            wait: row.get("wait"),
        })
    }

    /// The jobs that only relays see through, and for how many seconds the rate of each keeps it waiting.
    pub async fn unattended_jobs(&self) -> Result<Vec<(i64, f64)>, Error> {
        let rows = self.call(sql::UNATTENDED, &[]).await?;
        let job = |row: &Row| (row.get("job"), row.get("wait"));
        Ok(rows.iter().map(job).collect())
    }

    /// Ends a job where it is. Returns whether it was running; `None`: there is no such job.
    pub async fn abort_job(&self, job: i64) -> Result<Option<bool>, Error> {
        let row = self.one(sql::ABORT_JOB, &[(&job, Type::INT8)]).await?;
        Ok(row.get("was_running"))
    }

    /// The newest jobs, or one of them.
    pub async fn jobs(&self, job: Option<i64>, limit: i32) -> Result<Vec<Job>, Error> {
        let parameters: [Parameter<'_>; 2] = [(&job, Type::INT8), (&limit, Type::INT4)];
        find::read(sql::JOBS, &self.call(sql::JOBS, &parameters).await?)
    }
}

// === impl Filter ===

impl Filter {
    /// Whether it lets all pass.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// In the order in which all statements with a filter take them.
    pub(super) fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            (&self.topic, Type::TEXT),
            (&self.endpoint, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.reason, Type::TEXT),
            (&self.status, Type::INT4),
            (&self.error, Type::TEXT),
            (&self.since, Type::TEXT),
            (&self.until, Type::TEXT),
        ]
    }
}

// === impl Verb ===

impl Verb {
    /// As the commands and the jobs call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Replay { .. } => "replay",
            Verb::Discard => "discard",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Verb::Replay {
                delivered: true, ..
            } => "delivered",
            Verb::Replay { .. } | Verb::Discard => "dead",
        }
    }
}
