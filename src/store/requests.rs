//! Messages that come over HTTP. `sql/functions/accept.sql` says how they are told from those that came before.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Store, sql};

/// A message that somebody sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its ordering key.
    pub key: Option<&'a str>,
    /// Its type.
    pub kind: Option<&'a str>,
    /// JSON, kept byte for byte.
    pub payload: Option<&'a str>,
    /// Anything else, instead of it.
    pub body: Option<&'a [u8]>,
    /// Of the body or the payload.
    pub content_type: Option<&'a str>,
    /// An object of strings.
    pub headers: Option<&'a Value>,
    /// Due after this.
    pub due_in: Option<Duration>,
    /// Due at this time, as PostgreSQL reads it.
    pub due_at: Option<&'a str>,
    /// Given up after it.
    pub expires_at: Option<&'a str>,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
pub struct Requested<'a> {
    /// Who sends it.
    pub caller: &'a str,
    /// By which the caller means this request; `None`: it does not care.
    pub key: Option<&'a str>,
    /// Of what it sent.
    pub digest: &'a [u8],
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is a message now, or was one before.
    Message(Uuid),
    /// The key was used for another request.
    OtherRequest,
}

/// A saga that somebody starts.
#[derive(Clone, Copy, Debug)]
pub struct StartedSaga<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its key.
    pub key: &'a str,
    /// JSON, kept byte for byte.
    pub input: Option<&'a str>,
    /// Its plan; `None`: the one that a configuration has under its name.
    pub steps: Option<&'a Value>,
    /// An object of strings.
    pub headers: Option<&'a Value>,
    /// Its deadline is after this.
    pub deadline_in: Option<Duration>,
    /// Its deadline, as PostgreSQL reads it.
    pub deadline_at: Option<&'a str>,
}

impl Store {
    /// Starts a saga, unless there is one of its name and key, or its caller's key says that it was started.
    pub async fn start_saga(
        &self,
        requested: Requested<'_>,
        saga: StartedSaga<'_>,
    ) -> Result<Accepted, Error> {
        let deadline_in = saga
            .deadline_in
            .map(|deadline_in| deadline_in.as_secs_f64());
        let row = self
            .one(
                sql::START_SAGA,
                &[
                    (&requested.caller, Type::TEXT),
                    (&requested.key, Type::TEXT),
                    (&requested.digest, Type::BYTEA),
                    (&saga.name, Type::TEXT),
                    (&saga.key, Type::TEXT),
                    (&saga.input, Type::TEXT),
                    (&saga.steps, Type::JSONB),
                    (&saga.headers, Type::JSONB),
                    (&deadline_in, Type::FLOAT8),
                    (&saga.deadline_at, Type::TEXT),
                ],
            )
            .await?;
        let id: Option<Uuid> = row.get("id");
        Ok(id.map_or(Accepted::OtherRequest, Accepted::Message))
    }

    /// Inserts a message, unless its caller's key says that it is there.
    pub async fn accept(
        &self,
        requested: Requested<'_>,
        sent: Sent<'_>,
    ) -> Result<Accepted, Error> {
        let due_in = sent.due_in.map(|due_in| due_in.as_secs_f64());
        let row = self
            .one(
                sql::ACCEPT,
                &[
                    (&requested.caller, Type::TEXT),
                    (&requested.key, Type::TEXT),
                    (&requested.digest, Type::BYTEA),
                    (&sent.topic, Type::TEXT),
                    (&sent.key, Type::TEXT),
                    (&sent.kind, Type::TEXT),
                    (&sent.payload, Type::TEXT),
                    (&sent.body, Type::BYTEA),
                    (&sent.content_type, Type::TEXT),
                    (&sent.headers, Type::JSONB),
                    (&due_in, Type::FLOAT8),
                    (&sent.due_at, Type::TEXT),
                    (&sent.expires_at, Type::TEXT),
                ],
            )
            .await?;
        let id: Option<Uuid> = row.get("id");
        Ok(id.map_or(Accepted::OtherRequest, Accepted::Message))
    }

    /// When the request came that this message was accepted with, if that is still remembered.
    pub async fn accepted_at(&self, id: Uuid) -> Result<Option<String>, Error> {
        let rows = self.call(sql::ACCEPTED, &[(&id, Type::UUID)]).await?;
        Ok(rows.first().map(|row| row.get("accepted_at")))
    }

    /// Forgets requests that are older than this, so many at most. Returns how many there were.
    pub async fn forget_requests(&self, keep: Duration, limit: i32) -> Result<i32, Error> {
        let keep = keep.as_secs_f64();
        let parameters = [(&keep as _, Type::FLOAT8), (&limit as _, Type::INT4)];
        let row = self.one(sql::FORGET_REQUESTS, &parameters).await?;
        Ok(row.get("forgotten"))
    }
}
