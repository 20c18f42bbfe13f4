//! What can go wrong between us and the database.

use std::time::Duration;

/// What can go wrong between us and the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration can't be used.
    #[error("the database configuration can't be used: {0}")]
    Config(String),
    /// No connection.
    #[error("can't connect to the database: {0}")]
    Connect(String),
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
    #[error("{statement}: no answer from the database within {} s", .after.as_secs())]
    Timeout {
        /// The file in `sql/` that holds the statement.
        statement: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The database is not one that this relay may deliver from; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
}

// === impl Error ===

impl Error {
    /// Whether the server refused what a row holds (as opposed to being away, busy or full): another row may pass. So does
    /// a trigger that somebody added (`P0`).
    pub fn is_data(&self) -> bool {
        match self {
            Error::Statement {
                state: Some(state), ..
            } => ["22", "23", "54", "P0"]
                .iter()
                .any(|class| state.starts_with(class)),
            Error::Statement { state: None, .. }
            | Error::Config(_)
            | Error::Connect(_)
            | Error::Timeout { .. }
            | Error::Refused(_) => false,
        }
    }
}
