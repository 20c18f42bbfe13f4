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
            | Error::Timeout { .. }
            | Error::Refused(_) => false,
        }
    }
}
