//! Brings a database to this binary's schema, while relays and applications run.
//!
//! Each migration is a transaction of its own under an advisory lock, so two migrators can't meet; the version is read
//! under that lock. Locks on the application's table are waited for at most for a second at a time, then let go and tried again:
//! a statement that queues for an exclusive lock would make every INSERT queue behind it. There is no way back: a sidecar
//! rolls forward.

use std::time::Duration;

use super::{Error, Object, Store, identity};

/// The files of one number in `sql/migrations`, one transaction.
struct Migration {
    version: i32,
    texts: &'static [&'static str],
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    texts: &[
        include_str!("../../sql/migrations/0001_outbox.sql"),
        include_str!("../../sql/migrations/0001_sagas.sql"),
    ],
}];

/// The schema that this binary works with.
pub const SCHEMA_VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Functions replace their older selves, in this order: what is called stands before its caller.
const FUNCTIONS: &[&str] = &[
    include_str!("../../sql/functions/check_plan.sql"),
    include_str!("../../sql/functions/next_step.sql"),
    include_str!("../../sql/functions/system_identifier.sql"),
    include_str!("../../sql/functions/functions_digest.sql"),
    include_str!("../../sql/functions/highest_seq.sql"),
    include_str!("../../sql/functions/ring.sql"),
    include_str!("../../sql/functions/arm.sql"),
    include_str!("../../sql/functions/doorbell.sql"),
    include_str!("../../sql/functions/hang_up.sql"),
    include_str!("../../sql/functions/register.sql"),
    include_str!("../../sql/functions/pick_unordered.sql"),
    include_str!("../../sql/functions/pick_in_order.sql"),
    include_str!("../../sql/functions/claim.sql"),
    include_str!("../../sql/functions/expand.sql"),
    include_str!("../../sql/functions/bury.sql"),
    include_str!("../../sql/functions/send_step.sql"),
    include_str!("../../sql/functions/move_saga.sql"),
    include_str!("../../sql/functions/advance.sql"),
    include_str!("../../sql/functions/turn_back.sql"),
    include_str!("../../sql/functions/answer_step.sql"),
    include_str!("../../sql/functions/tend_sagas.sql"),
    include_str!("../../sql/functions/settle.sql"),
    include_str!("../../sql/functions/recover.sql"),
    include_str!("../../sql/functions/reap.sql"),
    include_str!("../../sql/functions/expire.sql"),
    include_str!("../../sql/functions/deregister.sql"),
    include_str!("../../sql/functions/pause.sql"),
    include_str!("../../sql/functions/resume.sql"),
    include_str!("../../sql/functions/cancel.sql"),
    include_str!("../../sql/functions/maintain_partitions.sql"),
    include_str!("../../sql/functions/ensure_partitions.sql"),
    include_str!("../../sql/functions/check_filter.sql"),
    include_str!("../../sql/functions/revive.sql"),
    include_str!("../../sql/functions/replay.sql"),
    include_str!("../../sql/functions/forget.sql"),
    include_str!("../../sql/functions/discard.sql"),
    include_str!("../../sql/functions/release_key.sql"),
    include_str!("../../sql/functions/fits.sql"),
    include_str!("../../sql/functions/matching.sql"),
    include_str!("../../sql/functions/start_job.sql"),
    include_str!("../../sql/functions/run_job.sql"),
    include_str!("../../sql/functions/abort_job.sql"),
    include_str!("../../sql/functions/obstacles.sql"),
    include_str!("../../sql/functions/why.sql"),
    include_str!("../../sql/functions/list.sql"),
    include_str!("../../sql/functions/history.sql"),
    include_str!("../../sql/functions/show.sql"),
    include_str!("../../sql/functions/parked_saga.sql"),
    include_str!("../../sql/functions/end_parked.sql"),
    include_str!("../../sql/functions/resume_saga.sql"),
    include_str!("../../sql/functions/skip_step.sql"),
    include_str!("../../sql/functions/cancel_saga.sql"),
    include_str!("../../sql/functions/rerun_saga.sql"),
    include_str!("../../sql/functions/find_sagas.sql"),
    include_str!("../../sql/functions/matching_sagas.sql"),
    include_str!("../../sql/functions/show_saga.sql"),
    include_str!("../../sql/functions/accept.sql"),
    include_str!("../../sql/functions/start_saga.sql"),
    include_str!("../../sql/functions/fire.sql"),
    include_str!("../../sql/functions/take_tokens.sql"),
    include_str!("../../sql/functions/report.sql"),
    include_str!("../../sql/functions/thin_partitions.sql"),
    include_str!("../../sql/functions/time_span.sql"),
    include_str!("../../sql/functions/conditions.sql"),
    include_str!("../../sql/functions/watch.sql"),
];

const ROLES: &str = include_str!("../../sql/roles.sql");
const GRANTS: &str = include_str!("../../sql/grants.sql");
const META: &str = include_str!("../../sql/meta.sql");
/// Writes down what the functions are, in their transaction.
const SEAL: &str = include_str!("../../sql/seal.sql");
const ACCEPT_COPY: &str = include_str!("../../sql/accept_copy.sql");
/// Makes or removes the trigger that rings.
const HANG_DOORBELL: &str = include_str!("../../sql/hang_doorbell.sql");
const DOORBELL_ON: &str = include_str!("../../sql/doorbell_on.sql");
const DOORBELL_OFF: &str = include_str!("../../sql/doorbell_off.sql");
/// The partitions of the first days, so that history is kept from the first attempt on.
const PARTITIONS: &str = include_str!("../../sql/first_partitions.sql");
/// Opens the transaction of a migration, and waits for another migrator.
const BEGIN: &str = include_str!("../../sql/begin_migration.sql");

/// So often a migration that could not get its locks is tried again.
const TRIES: u32 = 30;

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before, `None` if there was no outbox.
    pub from: Option<i32>,
    /// The version now.
    pub to: i32,
    /// Roles that do not exist and could not be created.
    pub missing_roles: Vec<String>,
}

/// All that `migrate` would run on an empty database, for a person with more rights to read and run.
///
/// `doorbell` as in [`Store::set_doorbell`]; `None` = as the server's settings say.
pub fn script(doorbell: Option<bool>) -> String {
    let mut parts = vec![
        "-- outbox-relay: everything that `outbox-relay migrate` runs on a database without an outbox.\n\
         -- Run it as the owner-to-be of schema outbox: psql --single-transaction -v ON_ERROR_STOP=1 -f this-file\n",
    ];
    parts.push(ROLES);
    parts.extend(MIGRATIONS.iter().flat_map(|migration| migration.texts));
    parts.extend(FUNCTIONS);
    parts.extend([META, SEAL, GRANTS, PARTITIONS]);
    parts.extend(doorbell.map(wanted));
    parts.push(HANG_DOORBELL);
    parts.join("\n")
}

impl Store {
    /// Applies what is missing. Idempotent. A `guard` is written down if given; `accept_copy` makes a copied database an
    /// outbox of its own.
    pub async fn migrate(&self, guard: Option<&str>, accept_copy: bool) -> Result<Migrated, Error> {
        let from = self.version().await?;
        if let Some(version) = from.filter(|version| *version > SCHEMA_VERSION) {
            return Err(identity::newer(version));
        }
        self.apply("roles", None, &[ROLES]).await?;
        for migration in MIGRATIONS {
            self.apply("migration", Some(migration.version), migration.texts)
                .await?;
        }
        let functions: Vec<&str> = FUNCTIONS.iter().copied().chain([META, SEAL]).collect();
        self.apply("functions", None, &functions).await?;
        self.apply("grants", None, &[GRANTS, PARTITIONS]).await?;
        self.apply("hang_doorbell", None, &[HANG_DOORBELL]).await?;
        if let Some(guard) = guard {
            self.set_guard(guard).await?;
        }
        if accept_copy {
            self.apply("accept_copy", None, &[ACCEPT_COPY]).await?;
        }
        let missing_roles = self
            .call(super::sql::MISSING_ROLES, &[])
            .await?
            .iter()
            .map(|row| row.get("role"))
            .collect();
        Ok(Migrated {
            from,
            to: SCHEMA_VERSION,
            missing_roles,
        })
    }

    /// Wants inserts to wake a relay, or not, whatever the server's settings are; later migrations keep to that.
    pub async fn set_doorbell(&self, on: bool) -> Result<(), Error> {
        self.apply("hang_doorbell", None, &[wanted(on), HANG_DOORBELL])
            .await
    }

    /// Runs texts in one transaction, again if a lock was not to be had. With a `version`, nothing is done where the database has it.
    async fn apply(
        &self,
        what: &'static str,
        version: Option<i32>,
        texts: &[&'static str],
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let client = self.client().await?;
            let mut begins = true;
            let done = async {
                client.batch_execute(BEGIN).await?;
                begins = false;
                if let Some(version) = version {
                    // Under the lock, in a statement of its own: another migrator may have been faster.
                    let present: bool =
                        client.query_typed(super::sql::PRESENT.text, &[]).await?[0].get("present");
                    if present {
                        let rows = client.query_typed(super::sql::VERSION.text, &[]).await?;
                        if rows[0]
                            .get::<_, Option<i32>>("version")
                            .is_some_and(|has| has >= version)
                        {
                            return client.batch_execute("ROLLBACK").await;
                        }
                    }
                }
                for text in texts {
                    client.batch_execute(text).await?;
                }
                client.batch_execute("COMMIT").await
            }
            .await;
            let Err(error) = done else { return Ok(()) };
            // Not through the pool again: the transaction is still open in it.
            drop(Object::take(client));
            tries += 1;
            let lock = error.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE);
            if !lock || tries == TRIES {
                return Err(Error::failed(what, &self.place, begins, &error));
            }
            tracing::info!(what, tries, "a lock is taken, trying again");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn wanted(doorbell: bool) -> &'static str {
    match doorbell {
        true => DOORBELL_ON,
        false => DOORBELL_OFF,
    }
}
