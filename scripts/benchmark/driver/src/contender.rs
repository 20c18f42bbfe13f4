//! Who is measured, and how each is loaded and started.
use std::{ops::Range, process::Command};

use crate::{
    Failure,
    database::Database,
    lab::Lab,
    process::{self, Process},
};

/// Requests at once, for everybody.
pub(crate) const CONCURRENCY: usize = 64;

/// Bytes of each message.
const SIZE: usize = 350;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Bare,
    Relay,
    GraphileRust,
    OutboxTuned,
    OutboxDefault,
    Graphile,
    PgBoss,
    BullMq,
}

/// The body of a message.
pub(crate) fn payload(n: u64) -> String {
    let number = n.to_string();
    let pad = "x".repeat(SIZE - r#"{"n":,"pad":""}"#.len() - number.len());
    format!(r#"{{"n":{number},"pad":"{pad}"}}"#)
}

/// Inserts messages with these numbers into an outbox. `keys` of 0: without ordering keys.
pub(crate) async fn insert(
    database: &Database,
    topic: &str,
    numbers: Range<u64>,
    keys: u64,
) -> Result<(), Failure> {
    let sql = r#"INSERT INTO outbox.messages (topic, key, payload)
                 SELECT $1, CASE WHEN $4::bigint > 0 THEN 'key-' || g % $4 END,
                        ('{"n":' || g || ',"pad":"' || repeat('x', 335 - length(g::text)) || '"}')::json
                   FROM generate_series($2::bigint, $3::bigint - 1) g"#;
    let number = |number| i64::try_from(number);
    let (start, end, keys) = (number(numbers.start)?, number(numbers.end)?, number(keys)?);
    database
        .client
        .execute(sql, &[&topic, &start, &end, &keys])
        .await?;
    Ok(())
}

// === impl Contender ===

impl Contender {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Bare => "bare loop",
            Contender::Relay => "outbox-relay",
            Contender::GraphileRust => "graphile_worker (Rust)",
            Contender::OutboxTuned => "outbox-pattern-processor, tuned",
            Contender::OutboxDefault => "outbox-pattern-processor",
            Contender::Graphile => "graphile-worker (npm)",
            Contender::PgBoss => "pg-boss",
            Contender::BullMq => "BullMQ",
        }
    }

    /// Runs on Node.js.
    pub(crate) fn is_script(self) -> bool {
        matches!(
            self,
            Contender::Graphile | Contender::PgBoss | Contender::BullMq
        )
    }

    /// The template that its database is copied from.
    pub(crate) fn template(self) -> Option<&'static str> {
        match self {
            Contender::Bare | Contender::BullMq => None,
            Contender::Relay => Some("t_relay"),
            Contender::GraphileRust => Some("t_graphile_rust"),
            Contender::OutboxTuned | Contender::OutboxDefault => Some("t_outbox_pattern"),
            Contender::Graphile => Some("t_graphile"),
            Contender::PgBoss => Some("t_pgboss"),
        }
    }

    /// Makes and loads its template.
    pub(crate) async fn prepare(self, lab: &Lab<'_>, messages: u64) -> Result<(), Failure> {
        let Some(template) = self.template() else {
            return Ok(());
        };
        if self == Contender::Relay {
            return lab.template(template, messages, 0).await;
        }
        let database = lab.server.create(template).await?;
        let count = messages.to_string();
        let sink = lab.sink.url("/");
        let mut command = match self {
            Contender::GraphileRust => {
                self.peer(lab, "bench-graphile", &["load", &database.url, &count])
            }
            Contender::OutboxTuned | Contender::OutboxDefault => self.peer(
                lab,
                "bench-outbox-pattern",
                &["load", &database.url, &count, &sink],
            ),
            Contender::Graphile => {
                self.script(lab, "graphile-worker.mjs", &["load", &database.url, &count])?
            }
            Contender::PgBoss => {
                self.script(lab, "pg-boss.mjs", &["load", &database.url, &count])?
            }
            Contender::Bare | Contender::Relay | Contender::BullMq => return Ok(()),
        };
        process::run(self.name(), &mut command)?;
        database.run("VACUUM (ANALYZE)").await
    }

    /// Starts it; `server` is the URL of its database or of its Redis.
    pub(crate) fn start(
        self,
        lab: &Lab<'_>,
        server: &str,
        path: &str,
        messages: u64,
    ) -> Result<Process, Failure> {
        let sink = lab.sink.url(path);
        let at_once = CONCURRENCY.to_string();
        let command = match self {
            Contender::Bare => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bare", &sink, &messages.to_string(), &at_once]);
                command
            }
            Contender::Relay => unreachable!("a relay needs a configuration"),
            Contender::GraphileRust => {
                self.peer(lab, "bench-graphile", &["run", server, &sink, &at_once])
            }
            // More processors only wait for each other: each looks at all rows that wait.
            Contender::OutboxTuned => {
                self.peer(lab, "bench-outbox-pattern", &["run", server, "8", "1000"])
            }
            Contender::OutboxDefault => {
                self.peer(lab, "bench-outbox-pattern", &["run", server, "1", "0"])
            }
            Contender::Graphile => self.script(
                lab,
                "graphile-worker.mjs",
                &["run", server, &sink, &at_once],
            )?,
            Contender::PgBoss => {
                self.script(lab, "pg-boss.mjs", &["run", server, &sink, &at_once])?
            }
            Contender::BullMq => {
                self.script(lab, "bullmq.mjs", &["run", server, &sink, &at_once])?
            }
        };
        Process::start(self.name(), &command, &lab.log("contender"))
    }

    /// SQL that says whether nothing is left to be written.
    pub(crate) fn settled(self) -> Option<&'static str> {
        match self {
            Contender::Bare | Contender::BullMq => None,
            Contender::Relay => Some("SELECT NOT EXISTS (SELECT FROM outbox.messages)"),
            Contender::GraphileRust | Contender::Graphile => {
                Some("SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)")
            }
            Contender::OutboxTuned => Some("SELECT NOT EXISTS (SELECT FROM outbox)"),
            Contender::OutboxDefault => {
                Some("SELECT NOT EXISTS (SELECT FROM outbox WHERE processed_at IS NULL)")
            }
            Contender::PgBoss => Some(
                "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE name = 'deliver' AND state < 'completed')",
            ),
        }
    }

    fn peer(self, lab: &Lab<'_>, binary: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(lab.options.peers.join(binary));
        command.args(arguments);
        command
    }

    pub(crate) fn script(
        self,
        lab: &Lab<'_>,
        script: &str,
        arguments: &[&str],
    ) -> Result<Command, Failure> {
        let Some(dir) = &lab.options.node else {
            return Err("the npm peers are not installed".into());
        };
        let mut command = Command::new("node");
        command
            .arg(dir.join(script))
            .args(arguments)
            .current_dir(dir);
        command.env("NODE_ENV", "production");
        Ok(command)
    }
}
