//! The main job, end to end, on a private throwaway PostgreSQL.
//!
//! An application that commits and rolls back, a receiver that misbehaves, two relay processes of which one is killed. Ends
//! by itself with a verdict.
//!
//! What is judged is what the receiver saw against what the application committed: two ledgers that the relay has no hand in.

mod receiver;
mod relays;
mod shop;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use self::{receiver::Misbehaving, relays::Relays, shop::Shop};
use super::Failure;
use crate::{lab::cluster, store};

/// The options of `outbox-relay demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Messages that the application commits (about a tenth more are rolled back).
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub messages: u32,
    /// Where `initdb` and `postgres` are, if not in one of the usual places.
    #[arg(long, value_name = "DIR")]
    pub postgres: Option<PathBuf>,
}

/// The relays of the demo take over from each other faster than in production.
const LEASE: Duration = Duration::from_secs(2);

/// With nothing delivered for so long, the demo has failed.
const STALLED: Duration = Duration::from_secs(30);

/// What both ledgers say together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    inserted: usize,
    delivered: usize,
    duplicates: u64,
    dead: usize,
    lost: usize,
    rolled_back_sent: usize,
    /// Faults that the last line has no place for.
    faults: Vec<String>,
}

pub(super) async fn run(demo: Demo) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("outbox-relay-demo-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(other("make a temporary directory"))?;
    let verdict = tokio::select! {
        verdict = play(&demo, &directory) => verdict,
        // What was started ends with what holds it: the relays, the receiver, PostgreSQL.
        () = super::shutdown() => {
            drop(std::fs::remove_dir_all(&directory));
            return Err(Failure::Other("the demo was interrupted".into()));
        }
    };
    match verdict {
        Ok(verdict) if verdict.is_good() => {
            drop(std::fs::remove_dir_all(&directory));
            say!("{}", verdict.line());
            Ok(())
        }
        Ok(verdict) => {
            say!("{}", verdict.line());
            let faults = verdict.faults.join("; ");
            let logs = directory.display();
            Err(Failure::Other(format!(
                "the demo failed: {faults} (the relays' logs are in {logs})"
            )))
        }
        Err(failure) => {
            eprintln!("the relays' logs are in {}", directory.display());
            Err(failure)
        }
    }
}

async fn play(demo: &Demo, directory: &Path) -> Result<Verdict, Failure> {
    let start = Instant::now();
    let say = |text: &str| say!("{:>6.1} s  {text}", start.elapsed().as_secs_f64());

    say("starting a private PostgreSQL");
    let options = cluster::Options {
        bin_dir: demo.postgres.clone(),
        ..cluster::Options::default()
    };
    let postgres = cluster::Cluster::start(options)
        .await
        .map_err(other("start PostgreSQL"))?;
    let url = postgres.url("postgres");
    let database = store::Config {
        url: url.clone(),
        url_file: None,
        ca_file: None,
        lenient: false,
        guard: None,
    };
    let migrated = store::Store::new(&database)?.migrate(None, false).await?;
    say(&format!(
        "outbox-relay migrate: schema version {}",
        migrated.to
    ));

    let receiver = Misbehaving::start().map_err(other("start a receiver"))?;
    say(
        "a receiver: 10 % answer 503, 3 % hang up, 5 % are slow, a few orders are refused with 422",
    );
    let mut relays = Relays::new(directory, &url, &receiver.url(), LEASE)?;
    relays.start()?;
    relays.start()?;
    say("two relays: outbox-relay run --config relay.toml");
    let mut shop = Shop::open(&url, demo.messages)
        .await
        .map_err(other("open the shop"))?;
    say(
        "an application: 4 writers, each order and its message in one transaction, one in ten rolled back",
    );

    let (watch, _driver) = connect(&url).await?;
    let mut killed = false;
    let mut progress = (0, Instant::now());
    let mut next_line = Instant::now();
    loop {
        let (committed, finished) = shop
            .progress()
            .map_err(|error| Failure::Other(format!("the application failed: {error}")))?;
        let delivered = receiver.delivered();
        if delivered != progress.0 {
            progress = (delivered, Instant::now());
        }
        if !killed && delivered * 5 >= usize::try_from(demo.messages).unwrap_or(usize::MAX) * 2 {
            let pid = relays.kill_first().await?;
            killed = true;
            say(&format!(
                "kill -9 {pid}: one relay dies, with messages in flight"
            ));
        }
        let (pending, dead) = counts(&watch).await?;
        let alive = one(&watch, "SELECT count(*) FROM outbox.relays").await?;
        if Instant::now() >= next_line {
            say(&format!(
                "committed {committed:>6}   delivered {delivered:>6}   pending {pending:>6}   dead {dead:>3}"
            ));
            next_line = Instant::now() + Duration::from_secs(1);
        }
        // Killed with nothing in flight, the dead relay has nothing to take; that it is dead is found out all the same.
        if finished && killed && pending == 0 && alive == 1 {
            break;
        }
        if progress.1.elapsed() > STALLED {
            let faults = vec![format!(
                "nothing was delivered for {} s, {pending} messages are pending",
                STALLED.as_secs()
            )];
            return Ok(Verdict {
                faults,
                ..judge(&shop, &receiver, &watch).await?
            });
        }
        relays.check()?;
        sleep(Duration::from_millis(20)).await;
    }
    let mut verdict = judge(&shop, &receiver, &watch).await?;
    if let Some(fault) = relays.stop().await? {
        verdict.faults.push(fault);
    }
    let left: i64 = one(
        &watch,
        "SELECT (SELECT count(*) FROM outbox.leases) + (SELECT count(*) FROM outbox.relays)",
    )
    .await?;
    if left > 0 {
        verdict
            .faults
            .push(format!("{left} leases or relays were left behind"));
    }
    say("SIGTERM: the other relay drains and ends");
    Ok(verdict)
}

/// Compares the application's ledger with the receiver's.
async fn judge(shop: &Shop, receiver: &Misbehaving, database: &Client) -> Result<Verdict, Failure> {
    let (committed, rolled_back) = shop.ledger();
    let (seen, delivered, duplicates) = receiver.ledger();
    let rows = database
        .query("SELECT d.id FROM outbox.dead_letters d", &[])
        .await
        .map_err(other("read the dead letters"))?;
    let dead: BTreeSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let lost = committed
        .iter()
        .filter(|id| !delivered.contains(id) && !dead.contains(id))
        .count();
    let rolled_back_sent = rolled_back.iter().filter(|id| seen.contains(id)).count();
    let mut faults = Vec::new();
    let refused = receiver.refused();
    if dead != refused {
        faults.push(format!(
            "{} messages are dead, {} were refused",
            dead.len(),
            refused.len()
        ));
    }
    let unknown = seen
        .iter()
        .filter(|id| !committed.contains(id) && !rolled_back.contains(id))
        .count();
    if unknown > 0 {
        faults.push(format!(
            "{unknown} messages were sent that the application never wrote"
        ));
    }
    let told: i64 = one(database, "SELECT count(DISTINCT a.id) FROM outbox.attempts a WHERE a.settlement IN ('delivered', 'dead')").await?;
    if usize::try_from(told).ok() != Some(committed.len() - lost) {
        faults.push(format!("history tells the end of {told} messages"));
    }
    if lost > 0 {
        faults.push(format!(
            "{lost} committed messages were neither delivered nor dead"
        ));
    }
    if rolled_back_sent > 0 {
        faults.push(format!(
            "{rolled_back_sent} messages were sent though their transaction was rolled back"
        ));
    }
    let inserted = committed.len();
    Ok(Verdict {
        inserted,
        delivered: delivered.len(),
        duplicates,
        dead: dead.len(),
        lost,
        rolled_back_sent,
        faults,
    })
}

async fn counts(database: &Client) -> Result<(i64, i64), Failure> {
    let pending = one(database, "SELECT count(*) FROM outbox.messages").await?;
    let dead = one(database, "SELECT count(*) FROM outbox.dead_letters").await?;
    Ok((pending, dead))
}

async fn one(database: &Client, query: &str) -> Result<i64, Failure> {
    let row = database
        .query_one(query, &[])
        .await
        .map_err(other("look into the database"))?;
    Ok(row.get(0))
}

/// A connection, and the task that drives it.
async fn connect(url: &str) -> Result<(Client, tokio::task::JoinSet<()>), Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(other("connect"))?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    Ok((client, driver))
}

fn other<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Other(format!("can't {what}: {error}"))
}

// === impl Verdict ===

impl Verdict {
    fn is_good(&self) -> bool {
        self.lost == 0 && self.rolled_back_sent == 0 && self.faults.is_empty()
    }

    fn line(&self) -> String {
        format!(
            "demo: inserted={} delivered={} duplicates={} dead={} lost={} rolled_back_sent={}",
            self.inserted,
            self.delivered,
            self.duplicates,
            self.dead,
            self.lost,
            self.rolled_back_sent
        )
    }
}
