//! What the tests share: a database for each of them, an HTTP client, and a way to wait.
//!
//! A test is a process of its own, and all of them share one throwaway server, which `scripts/test` starts.
use std::{
    process,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use outbox_relay::store::{self, Store};
use reqwest::Url;
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::{Client, NoTls, error::SqlState};

pub(crate) mod asked;
pub(crate) mod binary;
pub(crate) mod pgbouncer;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod rows;
pub(crate) mod scene;
pub(crate) mod secure;

/// Names the variable with the superuser's URL of the server.
const SERVER: &str = "OUTBOX_TEST_POSTGRES_URL";

/// Names the variable with the port of a PgBouncer before that server, which `scripts/test --pgbouncer` starts: stores, relays and
/// the binary go through it then, the tests' own connections do not. What needs a direct connection stands in
/// `.config/nextest.toml`.
const PGBOUNCER: &str = "OUTBOX_TEST_PGBOUNCER_PORT";

/// A migrated database to copy. The first test of a day that needs it makes it: its partitions are those of that day on.
const TEMPLATE: &str = "select 'outbox_template_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')";

/// Who holds it makes the template; the others wait.
const TEMPLATE_LOCK: &str = "select pg_advisory_lock(hashtext('outbox_template'))";

/// A database of one's own; the end of the test drops it and all connections to it.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) name: String,
    connections: Mutex<JoinSet<()>>,
}

/// Makes a new database with an outbox.
pub(crate) async fn database() -> Database {
    let mut connections = JoinSet::new();
    let admin = connect(server().as_str(), &mut connections).await;
    let template = template(&admin).await;
    let database = create(&admin, connections, &template).await;
    // A copy of an outbox is refused: this one is meant to be one of its own.
    let client = database.connect().await;
    let mine = "update outbox.meta set database = current_database(), database_oid = (select oid from pg_database where datname = current_database())";
    client.batch_execute(mine).await.unwrap();
    database
}

/// Makes a new database without an outbox.
#[allow(dead_code, reason = "for tests of the migration, which are to come")]
pub(crate) async fn empty_database() -> Database {
    let mut connections = JoinSet::new();
    let admin = connect(server().as_str(), &mut connections).await;
    create(&admin, connections, "template1").await
}

/// Copies a database as `createdb -T` does, as soon as nobody is connected to it.
pub(crate) async fn copy_of(original: &Database) -> Database {
    let mut connections = JoinSet::new();
    let admin = connect(server().as_str(), &mut connections).await;
    create(&admin, connections, &original.name).await
}

async fn create(admin: &Client, connections: JoinSet<()>, template: &str) -> Database {
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let mut url = server();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("it_{}_{number}", process::id());
        let create = format!("create database {name} template {template}");
        match admin.batch_execute(&create).await {
            Ok(()) => {
                url.set_path(&name);
                return Database {
                    url: url.into(),
                    name,
                    connections: Mutex::new(connections),
                };
            }
            // Left by another run with our process id, on a server that isn't thrown away.
            Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => {}
            Err(error) => panic!("{create}: {error:?}"),
        }
    }
}

/// Makes the template if nobody has, and returns its name.
async fn template(admin: &Client) -> String {
    let name: String = admin.query_one(TEMPLATE, &[]).await.unwrap().get(0);
    let there = "select from pg_database where datname = $1";
    if admin.query_opt(there, &[&name]).await.unwrap().is_some() {
        return name;
    }
    admin.batch_execute(TEMPLATE_LOCK).await.unwrap();
    if admin.query_opt(there, &[&name]).await.unwrap().is_none() {
        admin
            .batch_execute("drop database if exists outbox_draft with (force)")
            .await
            .unwrap();
        admin
            .batch_execute("create database outbox_draft")
            .await
            .unwrap();
        let mut url = server();
        url.set_path("outbox_draft");
        // A pooler would keep its sessions for longer.
        Store::new(&direct(url.as_str()))
            .unwrap()
            .migrate(None, false)
            .await
            .unwrap();
        // The store's connections end a moment after it; a template must have none.
        let others = "select from pg_stat_activity where datname = 'outbox_draft'";
        eventually(
            "the template has no connections",
            Duration::from_secs(10),
            async || admin.query(others, &[]).await.unwrap().is_empty(),
        )
        .await;
        let rename = format!("alter database outbox_draft rename to {name}");
        admin.batch_execute(&rename).await.unwrap();
    }
    admin
        .batch_execute("select pg_advisory_unlock_all()")
        .await
        .unwrap();
    name
}

/// How a store connects to a database of the tests.
pub(crate) fn config(url: &str) -> store::Config {
    direct(&pooled(url))
}

/// The URL of a database, by way of PgBouncer if the tests are to go through one and it is a database of their server.
pub(crate) fn pooled(url: &str) -> String {
    let parsed = url.parse::<Url>().ok();
    match parsed.filter(|url| url.port() == server().port()) {
        Some(mut url) => {
            url.set_port(url.port().map(pooled_port)).unwrap();
            url.into()
        }
        None => url.into(),
    }
}

/// The same for a port.
pub(crate) fn pooled_port(port: u16) -> u16 {
    match variable(PGBOUNCER) {
        Some(pooler) if server().port() == Some(port) => pooler.parse().unwrap(),
        Some(_) | None => port,
    }
}

/// With no pooler between.
pub(crate) fn direct(url: &str) -> store::Config {
    store::Config {
        url: url.into(),
        url_file: None,
        ca_file: None,
        lenient: false,
        guard: None,
    }
}

impl Database {
    /// A store of its own.
    pub(crate) fn store(&self) -> Store {
        Store::new(&config(&self.url)).unwrap()
    }

    /// Connects as the superuser; the connection lives as long as the client and the database do.
    pub(crate) async fn connect(&self) -> Client {
        let mut connections = JoinSet::new();
        let client = connect(&self.url, &mut connections).await;
        let mut all = self.connections.lock().unwrap();
        all.spawn(async move { while connections.join_next().await.is_some() {} });
        client
    }
}

impl Drop for Database {
    /// Waits for it, on a thread with a runtime of its own, because a test ends with its runtime.
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.name);
        let dropper = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut connections = JoinSet::new();
                let admin = connect(server().as_str(), &mut connections).await;
                admin.batch_execute(&drop).await.unwrap();
            });
        });
        // A server that a test has taken down has no database to drop.
        dropper.join().ok();
    }
}

/// Looks every 10 ms until `condition` holds, and panics when it doesn't in time.
pub(crate) async fn eventually(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let start = Instant::now();
    while !condition().await {
        assert!(
            start.elapsed() < deadline,
            "not within {deadline:?}: {what}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

/// A client with time-outs, as everywhere; reqwest wants a TLS provider even for plain HTTP.
pub(crate) fn client() -> reqwest::Client {
    // It fails when another call in this process was first: just as well.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap()
}

fn server() -> Url {
    let Some(server) = variable(SERVER) else {
        panic!(
            "{SERVER} is not set: run the tests with scripts/test, which starts a PostgreSQL for them"
        );
    };
    server.parse().unwrap()
}

/// Where scripts/setup has put a program.
pub(crate) fn told(name: &str) -> String {
    variable(name).unwrap_or_else(|| {
        panic!("{name} is not set: run the tests with scripts/test, which sets it")
    })
}

fn variable(name: &str) -> Option<String> {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where they are"
    )]
    std::env::var(name).ok()
}

async fn connect(url: &str, connections: &mut JoinSet<()>) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    connections.spawn(async {
        // What goes wrong on it is what the client's caller is told.
        connection.await.ok();
    });
    client
}
