//! The PostgreSQL edge.

use std::{fmt, path::PathBuf};

/// Where the database is.
#[derive(Clone, PartialEq)]
pub struct Config {
    /// A libpq URL or key-value string, password included: never printed.
    pub url: String,
    /// PEM file with the authorities that the server's certificate may come from; `None` = the system's.
    pub ca_file: Option<PathBuf>,
    /// The word that `outbox.meta` must hold where it holds one: tells a physical clone from the original.
    pub guard: Option<String>,
    /// Connections for claims, settles and maintenance; the renewal has one more of its own.
    pub connections: usize,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &"…")
            .field("guard", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}
