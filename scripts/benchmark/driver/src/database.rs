//! The database of the run: a private PostgreSQL with durable commits and, but for three, the settings that it comes with.
//!
//! What a contender works on is a copy of a template that was loaded and vacuumed once, so that all rounds begin alike, and
//! in the same interval between two checkpoints, so that no round pays for the full pages of another one's load.
use std::path::Path;

use outbox_relay::lab::cluster::{Cluster, Options};
use tokio_postgres::{Client, NoTls, Row, types::ToSql};

use crate::{Failure, process};

pub(crate) struct Server {
    cluster: Cluster,
    admin: Client,
}

/// A database of the server, and a connection to it.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) client: Client,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start(programs: &Path) -> Result<Server, Failure> {
        let settings = [
            ("max_connections", "400"),
            // How often the relay's functions are called, and for how long.
            ("track_functions", "pl"),
            // No checkpoint because of what is loaded between two runs.
            ("max_wal_size", "8GB"),
        ];
        let cluster = Cluster::start(Options {
            bin_dir: Some(programs.to_owned()),
            durable: true,
            settings: settings
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        })
        .await?;
        let admin = connect(&cluster.url("postgres")).await?;
        Ok(Server { cluster, admin })
    }

    /// CPU of all its processes so far.
    pub(crate) fn cpu(&self) -> std::time::Duration {
        self.cluster.pid().map(process::family).unwrap_or_default()
    }

    /// An empty database.
    pub(crate) async fn create(&self, name: &str) -> Result<Database, Failure> {
        self.drop_database(name).await?;
        self.admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await?;
        self.open(name).await
    }

    pub(crate) async fn copy(&self, template: &str, name: &str) -> Result<Database, Failure> {
        self.drop_database(name).await?;
        // An autovacuum worker may just be looking at the template.
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template}");
        let mut tries = 0;
        while let Err(error) = self.admin.batch_execute(&sql).await {
            tries += 1;
            if tries == 50 {
                return Err(error.into());
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        self.open(name).await
    }

    pub(crate) async fn drop_database(&self, name: &str) -> Result<(), Failure> {
        let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        Ok(self.admin.batch_execute(&sql).await?)
    }

    async fn open(&self, name: &str) -> Result<Database, Failure> {
        let url = self.cluster.url(name);
        let client = connect(&url).await?;
        Ok(Database {
            name: name.to_owned(),
            url,
            client,
        })
    }

    /// Bytes of WAL written so far.
    pub(crate) async fn wal(&self) -> Result<f64, Failure> {
        let row = self
            .admin
            .query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8", &[])
            .await?;
        Ok(row.get(0))
    }

    /// The backends that work for a database, ours excepted.
    pub(crate) async fn backends(&self, database: &Database) -> Result<Vec<u32>, Failure> {
        let sql = "SELECT pid FROM pg_stat_activity
                    WHERE datname = $1 AND backend_type = 'client backend' AND application_name <> 'bench'";
        let rows = self.admin.query(sql, &[&database.name]).await?;
        Ok(rows
            .iter()
            .flat_map(|row| u32::try_from(row.get::<_, i32>(0)))
            .collect())
    }

    /// Transactions that ended in a database so far.
    pub(crate) async fn transactions(&self, database: &str) -> Result<f64, Failure> {
        let sql =
            "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = $1";
        Ok(self.admin.query_one(sql, &[&database]).await?.get(0))
    }
}

// === impl Database ===

impl Database {
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(crate) async fn one(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Failure> {
        Ok(self.client.query_one(sql, values).await?)
    }

    pub(crate) async fn is(&self, sql: &str) -> Result<bool, Failure> {
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }

    /// Versions of rows that updates and deletes left behind so far. Exact when the backends that did it have ended.
    pub(crate) async fn dead_tuples(&self) -> Result<f64, Failure> {
        self.run("SELECT pg_stat_clear_snapshot()").await?;
        let sql = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables";
        Ok(self.one(sql, &[]).await?.get(0))
    }

    /// Calls of a function and milliseconds in it so far. Exact when the backends that did it have ended.
    pub(crate) async fn function(&self, name: &str) -> Result<(f64, f64), Failure> {
        let sql = "SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(total_time), 0)::float8
                     FROM pg_stat_user_functions WHERE schemaname = 'outbox' AND funcname = $1";
        let row = self.one(sql, &[&name]).await?;
        Ok((row.get(0), row.get(1)))
    }
}

/// A connection whose task ends with it.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let mut config: tokio_postgres::Config = url.parse()?;
    config.application_name("bench");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
