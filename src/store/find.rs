//! What operators look for. The functions in `sql/functions` of the same names say what each returns.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Error, Filter, Parameter, Store, sql};

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not delivered yet.
    Pending,
    /// Given up on.
    Dead,
    /// Delivered and kept for replay.
    Delivered,
}

/// A message in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Listed {
    /// Its id.
    pub id: Uuid,
    /// The destination; of what is pending the one or more that its route leads to, empty where no relay has said so.
    pub endpoint: String,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// When it was inserted, died or was delivered.
    pub at: String,
    /// When it is due, where that was said.
    pub due_at: Option<String>,
    /// Attempts so far.
    pub attempts: i32,
    /// Why it died.
    pub reason: Option<String>,
    /// The HTTP status of the last answer.
    pub status: Option<i32>,
    /// What the last failed attempt said.
    pub error: Option<String>,
    /// Bytes of its payload.
    pub size: i32,
    /// How often it was replayed.
    pub generation: i32,
    /// Its place: the next page begins after it.
    pub place: Value,
}

/// Which lines of the history are meant; `None` lets all pass, and all that is given must fit.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Of this message.
    pub id: Option<Uuid>,
    /// The topic, whole or with a `*` at its end.
    pub topic: Option<String>,
    /// The destination.
    pub endpoint: Option<String>,
    /// The ordering key.
    pub key: Option<String>,
    /// The class of the outcome.
    pub outcome: Option<String>,
    /// What followed.
    pub settlement: Option<String>,
    /// The HTTP status.
    pub status: Option<i32>,
    /// A part of the error, in upper or lower case.
    pub error: Option<String>,
    /// The relay's name.
    pub relay: Option<String>,
    /// Only what was not delivered.
    pub failures: bool,
    /// It took longer than so many seconds.
    pub slower: Option<f64>,
    /// The number of the attempt; 0: none was made.
    pub attempt: Option<i32>,
    /// When it was started, in the form of [`Filter::since`].
    pub since: Option<String>,
    /// Not after.
    pub until: Option<String>,
}

/// A line of the history: an attempt, a death without one, or what an operator did.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Line {
    /// When it was started.
    pub started_at: String,
    /// How long it took.
    pub seconds: f64,
    /// The message.
    pub id: Uuid,
    /// The destination.
    pub endpoint: String,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// Which attempt, from 1; 0: none was made.
    pub attempt: i32,
    /// How often the message had been replayed.
    pub generation: i32,
    /// The class of the outcome.
    pub outcome: String,
    /// What followed.
    pub settlement: String,
    /// Why it died, or why an operator did it.
    pub reason: Option<String>,
    /// The HTTP status.
    pub status: Option<i32>,
    /// What went wrong.
    pub error: Option<String>,
    /// The beginning of the answer.
    pub response: Option<String>,
    /// The relay's name, or who did it.
    pub relay: String,
    /// Where details are kept: method, URL, headers, size and digest of the body.
    pub request: Option<Value>,
    /// Where details are kept: the answer's headers.
    pub response_headers: Option<Value>,
    /// Its place: the next page begins after it.
    pub place: Value,
}

/// What stands between a message and its delivery to an endpoint.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Why {
    /// The destination; empty where it is not known.
    pub endpoint: String,
    /// One word: see `sql/functions/why.sql`.
    pub state: String,
    /// A sentence.
    pub why: String,
}

impl Store {
    /// A page of messages, after the place of the last row of the page before.
    pub async fn list(
        &self,
        state: State,
        filter: &Filter,
        after: Option<&Value>,
        limit: i32,
    ) -> Result<Vec<Listed>, Error> {
        let state = state.as_str();
        let mut parameters: Vec<Parameter<'_>> = vec![(&state, Type::TEXT)];
        parameters.extend(filter.parameters());
        let page: [Parameter<'_>; 2] = [(&after, Type::JSON), (&limit, Type::INT4)];
        parameters.extend(page);
        read(sql::LIST, &self.call(sql::LIST, &parameters).await?)
    }

    /// A page of the history, newest first, after the place of the last row of the page before.
    pub async fn history(
        &self,
        search: &Search,
        after: Option<&Value>,
        limit: i32,
    ) -> Result<Vec<Line>, Error> {
        let parameters: [Parameter<'_>; 16] = [
            (&search.id, Type::UUID),
            (&search.topic, Type::TEXT),
            (&search.endpoint, Type::TEXT),
            (&search.key, Type::TEXT),
            (&search.outcome, Type::TEXT),
            (&search.settlement, Type::TEXT),
            (&search.status, Type::INT4),
            (&search.error, Type::TEXT),
            (&search.relay, Type::TEXT),
            (&search.failures, Type::BOOL),
            (&search.slower, Type::FLOAT8),
            (&search.attempt, Type::INT4),
            (&search.since, Type::TEXT),
            (&search.until, Type::TEXT),
            (&after, Type::JSON),
            (&limit, Type::INT4),
        ];
        read(sql::HISTORY, &self.call(sql::HISTORY, &parameters).await?)
    }

    /// The whole life of a message, as a JSON object with its payload as it was written; `None`: nothing of it is known.
    pub async fn show(&self, id: Uuid) -> Result<Option<Box<RawValue>>, Error> {
        let row = self.one(sql::SHOW, &[(&id, Type::UUID)]).await?;
        raw(sql::SHOW, row.get("life"))
    }

    /// Why a message is not delivered, for each endpoint that it is bound for. Nothing: no message of this id is known.
    pub async fn why(&self, id: Uuid) -> Result<Vec<Why>, Error> {
        let rows = self.call(sql::WHY, &[(&id, Type::UUID)]).await?;
        let why = |row: &Row| Why {
            endpoint: row.get("endpoint"),
            state: row.get("state"),
            why: row.get("why"),
        };
        Ok(rows.iter().map(why).collect())
    }
}

// === impl State ===

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Dead => "dead",
            State::Delivered => "delivered",
        }
    }
}

/// Reads rows that are JSON objects.
pub(super) fn read<T: DeserializeOwned>(
    statement: sql::Statement,
    rows: &[Row],
) -> Result<Vec<T>, Error> {
    read_from(statement, "row", rows)
}

/// The same, where the objects are in this column.
pub(super) fn read_from<T: DeserializeOwned>(
    statement: sql::Statement,
    column: &str,
    rows: &[Row],
) -> Result<Vec<T>, Error> {
    rows.iter()
        .map(|row| serde_json::from_str(row.get(column)))
        .collect::<Result<_, _>>()
        .map_err(|error| unread(statement, &error))
}

/// A JSON value as the database wrote it.
pub(super) fn raw(
    statement: sql::Statement,
    text: Option<String>,
) -> Result<Option<Box<RawValue>>, Error> {
    text.map(RawValue::from_string)
        .transpose()
        .map_err(|error| unread(statement, &error))
}

fn unread(statement: sql::Statement, error: &serde_json::Error) -> Error {
    Error::Refused(format!("{}: {error}", statement.name))
}
