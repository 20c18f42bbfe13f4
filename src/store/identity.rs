//! Whether this database is one that a relay may deliver from.
//!
//! A restored dump, a physical clone or a logical replica holds the same rows as the original: if both delivered, everything
//! would be sent twice. So `outbox.meta` says whose outbox it is, and a relay refuses to start where that doesn't hold.

use tokio_postgres::types::Type;

use super::{Error, SCHEMA_VERSION, Store, sql};

impl Store {
    /// Refuses a database without an outbox, with one of another version or one that was altered by hand, a copy, a clone with
    /// another guard word, and one whose sequence fell behind. Each text says what to do. Of a database that can be
    /// delivered from it returns what should be known.
    pub async fn check(&self) -> Result<Vec<String>, Error> {
        self.check_version().await?;
        let notes = self.check_shape().await?;
        self.check_identity().await?;
        Ok(notes)
    }

    /// The same without a look at what the schema is made of: what a relay that was delivering a moment ago must know.
    pub async fn check_again(&self) -> Result<(), Error> {
        self.check_version().await?;
        self.check_identity().await
    }

    async fn check_version(&self) -> Result<(), Error> {
        match self.version().await? {
            None => {
                return Err(Error::Refused(
                    "the database has no outbox yet: run `outbox-relay migrate`".into(),
                ));
            }
            Some(version) if version > SCHEMA_VERSION => return Err(newer(version)),
            Some(version) if version < SCHEMA_VERSION => {
                return Err(Error::Refused(format!(
                    "the schema is at version {version}, this binary needs {SCHEMA_VERSION}: run `outbox-relay migrate`"
                )));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Whether this is the database that it was.
    async fn check_identity(&self) -> Result<(), Error> {
        let row = self.call(sql::IDENTITY, &[]).await?.pop().ok_or_else(|| {
            Error::Refused("outbox.meta is empty: run `outbox-relay migrate`".into())
        })?;
        let text = |column| row.get::<_, Option<String>>(column);

        let (was, is) = (text("system_identifier"), text("system_identifier_now"));
        let (database, database_now) = (text("database"), text("database_now"));
        let (oid, oid_now) = (
            row.get::<_, u32>("database_oid"),
            row.get::<_, u32>("database_oid_now"),
        );
        // A database that was renamed keeps its number, one that was restored has another.
        if (was.is_some() && is.is_some() && was != is) || oid != oid_now {
            let show = |part: Option<String>| part.unwrap_or_else(|| "unknown".into());
            return Err(Error::Refused(format!(
                "this database is a copy: its outbox belongs to database {:?} (oid {oid}) of server {}, and this is \
                 database {:?} (oid {oid_now}) of server {}. If the original still delivers, everything would be sent twice. To make this one an outbox of \
                 its own, run `outbox-relay migrate --accept-copy`",
                show(database),
                show(was),
                show(database_now),
                show(is),
            )));
        }
        match (text("guard"), &self.guard) {
            (Some(guard), None) => {
                return Err(Error::Refused(format!(
                    "this outbox is guarded by the word {guard:?}, and the configuration has no `guard`: if this is the \
                     database that the relay is for, set guard = {guard:?} under [database]"
                )));
            }
            (Some(guard), Some(ours)) if guard != *ours => {
                return Err(Error::Refused(format!(
                    "this outbox is guarded by the word {guard:?}, and the configuration says {ours:?}: this is a clone, or \
                     the wrong database. Change `guard` under [database], or the word with `outbox-relay migrate --guard`"
                )));
            }
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(ours)) => {
                return Err(Error::Refused(format!(
                    "the configuration says guard = {ours:?}, and this outbox has no guard word: set it once with \
                     `outbox-relay migrate --guard {ours}`"
                )));
            }
        }
        let (last, highest) = (
            row.get::<_, i64>("last_seq"),
            row.get::<_, Option<i64>>("highest_seq"),
        );
        if let Some(highest) = highest.filter(|highest| *highest > last) {
            return Err(Error::Refused(format!(
                "the sequence of outbox.messages.seq is at {last}, and a message has {highest}: after a logical replica took \
                 over, sequences start anew and order would break. Run \
                 `SELECT setval('outbox.messages_seq_seq', {highest})`, or `outbox-relay migrate --accept-copy`"
            )));
        }
        Ok(())
    }

    /// The newest migration that the database has; `None` without an outbox. Refuses a schema `outbox` of somebody else's.
    pub async fn version(&self) -> Result<Option<i32>, Error> {
        let row = self.one(sql::PRESENT, &[]).await?;
        if !row.get::<_, bool>("present") {
            let Some(strange) = row.get::<_, Option<String>>("strange") else {
                return Ok(None);
            };
            return Err(Error::Refused(format!(
                "this database has a schema outbox that is not outbox-relay's: it has outbox.{strange}, and no \
                 outbox.migrations with a column version. Rename it, or use another database"
            )));
        }
        Ok(Some(
            self.one(sql::VERSION, &[])
                .await?
                .get::<_, Option<i32>>("version")
                .unwrap_or(0),
        ))
    }

    /// Sets the word that relays must know.
    pub(super) async fn set_guard(&self, guard: &str) -> Result<(), Error> {
        self.call(sql::SET_GUARD, &[(&guard, Type::TEXT)])
            .await
            .map(drop)
    }
}

pub(super) fn newer(version: i32) -> Error {
    Error::Refused(format!(
        "the schema is at version {version}, newer than this binary's {SCHEMA_VERSION}: run a newer outbox-relay"
    ))
}
