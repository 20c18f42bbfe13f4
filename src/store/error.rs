//! What can go wrong between us and the database.

use std::{sync::Arc, time::Duration};

use super::connect::explain;

/// What can go wrong between us and the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration can't be used.
    #[error("the database configuration can't be used: {0}")]
    Config(String),
    /// No connection. The text says to which host, port and database, for each that was tried.
    #[error("can't connect to the database: {0}")]
    Connect(String),
    /// Connected, but nothing can be written there.
    #[error(
        "this server is a standby (read-only): {place}; the outbox can be worked on at the primary only"
    )]
    Standby {
        /// Host, port and database.
        place: Arc<str>,
    },
    /// The server refused a statement, or the connection broke under it.
    #[error("{statement}: {message}")]
    Statement {
        /// The file in `sql/` that holds the statement.
        statement: &'static str,
        /// The server's message with its SQLSTATE, or what happened to the connection.
        message: String,
        /// The SQLSTATE, where the server answered.
        state: Option<String>,
    },
    /// No answer in time; the connection was given up.
    #[error("{statement}: no answer from the database within {} s: {place}", .after.as_secs())]
    Timeout {
        /// The file in `sql/` that holds the statement.
        statement: &'static str,
        /// How long was waited.
        after: Duration,
        /// Host, port and database.
        place: Arc<str>,
    },
    /// The database is not one that this relay may deliver from; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
}

// === impl Error ===

impl Error {
    /// What became of a statement. A standby can't even begin what may write: it doesn't support that, or finds itself read-only.
    pub(super) fn failed(
        statement: &'static str,
        place: &Arc<str>,
        begins: bool,
        error: &tokio_postgres::Error,
    ) -> Error {
        let state = error.code().map(|state| state.code().to_owned());
        let standby = match state.as_deref() {
            Some("25006") => true,
            Some("0A000") => begins,
            Some(_) | None => false,
        };
        if standby {
            return Error::Standby {
                place: Arc::clone(place),
            };
        }
        let message = match error.as_db_error() {
            Some(_) => explain(error),
            None => format!("{place}: {}", explain(error)),
        };
        Error::Statement {
            statement,
            message,
            state,
        }
    }

    /// Whether somebody had locked what was needed, or each waited for the other: nothing was done, and another time it may be.
    pub fn is_crowded(&self) -> bool {
        matches!(self, Error::Statement { state: Some(state), .. } if ["55P03", "40P01"].contains(&state.as_str()))
    }

    /// What is wrong with what somebody wants inserted, where that is what was refused: a constraint of the table's, whose name is a
    /// sentence, or something that could not be read.
    pub fn refusal(&self) -> Option<&str> {
        let Error::Statement {
            state: Some(state),
            message,
            ..
        } = self
        else {
            return None;
        };
        match state.as_str() {
            "23514" => {
                let named = message.split_once("check constraint \"");
                // What follows shows the row.
                let named = named.and_then(|(_, rest)| rest.split_once("\" (SQLSTATE"));
                // outbox.check_plan says by itself what is wrong, and shows nothing of the plan.
                let plan = message.split_once(" (SQLSTATE");
                let plan = plan.filter(|(text, _)| text.starts_with("steps"));
                let said = named.or(plan).map(|(said, _)| said);
                Some(said.unwrap_or("a check of the table"))
            }
            // Nested too deeply for the server's stack.
            "54001" => Some(message),
            state if state.starts_with("22") => Some(message),
            _ => None,
        }
    }

    /// Whether the server answered, though it did not do what was asked.
    pub fn is_answer(&self) -> bool {
        matches!(self, Error::Statement { state: Some(_), .. })
    }

    /// Whether the server refused what a row holds, or what somebody's trigger thinks of it: another row may pass. Not so where the
    /// server is away, busy, full or read-only, or the statement itself fits no schema (SQLSTATE classes, PostgreSQL's appendix A).
    pub fn is_data(&self) -> bool {
        // 42501: no right to write a dead letter; what was delivered can be settled all the same.
        const RIGHTS: &str = "42501";
        const NOT_THE_ROW: [&str; 13] = [
            "08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58",
        ];
        match self {
            Error::Statement {
                state: Some(state), ..
            } => state == RIGHTS || !NOT_THE_ROW.iter().any(|class| state.starts_with(class)),
            Error::Statement { state: None, .. }
            | Error::Config(_)
            | Error::Connect(_)
            | Error::Standby { .. }
            | Error::Timeout { .. }
            | Error::Refused(_) => false,
        }
    }
}
