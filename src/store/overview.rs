//! What operators see at a glance: how much was attempted over time, and what fails for the same reason.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio_postgres::types::Type;

use super::{Error, Parameter, Store, find, sql};

/// What was attempted in a span of time, piece by piece.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Overview {
    /// The database's clock, in seconds.
    pub now: f64,
    /// Where the first piece begins, in seconds.
    pub first: f64,
    /// How long a piece is, in seconds.
    pub step: f64,
    /// The pieces with attempts, by time and endpoint.
    pub pieces: Vec<Piece>,
    /// The pieces of which only the newest part was read.
    pub partly: Vec<Partly>,
}

/// What was attempted at one endpoint in a piece of time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Piece {
    /// Where it begins, in seconds.
    pub at: f64,
    /// The destination.
    pub endpoint: String,
    /// Requests.
    pub attempts: i64,
    /// Those that delivered a message.
    pub delivered: i64,
    /// Those that did not.
    pub failed: i64,
    /// Messages that were given up, with or without a request.
    pub dead: i64,
    /// Half of the requests took no more seconds than this.
    pub p50: Option<f64>,
    /// Nineteen of twenty did not.
    pub p95: Option<f64>,
}

/// A piece of time with more rows than are read.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Partly {
    /// Where it begins, in seconds.
    pub at: f64,
    /// So many seconds at its end were read.
    pub covered: f64,
}

/// What failed in a span of time, by endpoint and error.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failures {
    /// Rows that were read: the newest.
    pub read: i64,
    /// When the oldest of them was.
    pub back_to: Option<String>,
    /// Groups in all.
    pub groups: i64,
    /// The largest groups.
    pub failures: Vec<Alike>,
}

/// Failures that look alike.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Alike {
    /// The destination.
    pub endpoint: String,
    /// The class of the outcome.
    pub outcome: String,
    /// The HTTP status.
    pub status: Option<i32>,
    /// What went wrong, with `#` for numbers and `…` for UUIDs.
    pub error: Option<String>,
    /// How often.
    pub count: i64,
    /// How many messages died of it.
    pub dead: i64,
    /// When it was seen first.
    pub first: String,
    /// ... and last.
    pub last: String,
    /// The message that it was seen of last.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// The error as it was said then.
    pub whole: Option<String>,
}

impl Store {
    /// What was attempted since then, in the form of [`super::Filter::since`]: an hour ago, at least a minute, at most 31 days.
    /// Of each piece so many rows are read.
    pub async fn overview(&self, since: Option<&str>, rows: i32) -> Result<Overview, Error> {
        let parameters: [Parameter<'_>; 2] = [(&since, Type::TEXT), (&rows, Type::INT4)];
        self.document(sql::OVERVIEW, &parameters).await
    }

    /// What failed since then, an hour ago if nobody says, of the newest so many rows, in so many groups.
    pub async fn failures(
        &self,
        since: Option<&str>,
        endpoint: Option<&str>,
        rows: i32,
        groups: i32,
    ) -> Result<Failures, Error> {
        let parameters: [Parameter<'_>; 4] = [
            (&since, Type::TEXT),
            (&rows, Type::INT4),
            (&endpoint, Type::TEXT),
            (&groups, Type::INT4),
        ];
        self.document(sql::FAILURES, &parameters).await
    }

    /// The one JSON object that a statement returns.
    async fn document<T: DeserializeOwned>(
        &self,
        statement: sql::Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<T, Error> {
        let row = self.one(statement, parameters).await?;
        let mut read = find::read(statement, &[row])?;
        read.pop()
            .ok_or_else(|| Error::Refused(format!("{}: returned nothing", statement.name)))
    }
}
