//! The parties: a server of its own, a receiver, some relays, and a proxy between every two of them.
use std::{path::PathBuf, sync::Arc, time::Duration};

use outbox_relay::{
    lab::{
        cluster::{self, Cluster, Stop},
        receiver::{Options, Receiver},
    },
    store::Store,
};
use rand::{Rng, RngExt, seq::IndexedRandom};
use rustix::process::Signal;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::{Client, NoTls};

use super::ledger::{Arrivals, TABLES};
use crate::support::{
    binary::{Directory, Process},
    config,
    proxy::Proxy,
    rows::{SOON, count},
};

/// How many relays there are.
const RELAYS: usize = 3;

/// Requests of one relay at once, to all endpoints.
const CONCURRENCY: usize = 8;

/// Where a relay may end itself in the middle of its loop: `relay/crash.rs` has them all.
pub(super) const POINTS: [&str; 15] = [
    "registered",
    "claim",
    "claimed",
    "started",
    "sent",
    "answered",
    "settle",
    "settled",
    "expanded",
    "expired",
    "beat",
    "reaped",
    "recovered",
    "anew",
    "deregister",
];

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A relay is killed, and started again.
    Kill,
    /// One kills itself at a point of its loop.
    Crash(&'static str),
    /// One stands still, for longer than its lease or not.
    Stall,
    /// One is replaced, as an update does.
    Replace,
    /// The server is stopped and started.
    Restart(Stop),
    /// The server is killed, and started again.
    KillServer,
    /// Somebody ends all connections to the database.
    Terminate,
    /// One backend is killed, and the server recovers.
    KillBackend,
    /// The connections to the database are cut.
    Cut,
    /// ... or swallowed for a while.
    Hole,
    /// A transaction is committed, and its relay never learns of it.
    LoseAnswer(&'static str),
    /// The connections to the receiver are cut.
    CutReceiver,
    /// ... or swallowed for a while.
    HoleReceiver,
    /// The writers' connections are cut.
    CutWriters,
    /// ... or swallowed for a while.
    HoleWriters,
    /// One of them never learns that it has committed.
    LoseCommit,
    /// There is no room for the history.
    DiskFull,
}

pub(super) struct World {
    cluster: Cluster,
    database: Proxy,
    /// For the writers: what befalls them befalls no relay.
    writers: Proxy,
    receiver_proxy: Proxy,
    _receiver: Receiver,
    directory: Directory,
    config: PathBuf,
    relays: Vec<Option<Process>>,
    started: usize,
    /// How many requests the history need not know of: a server that crashes has lost its last claims, and what was
    /// sent under them counts only if it was accepted first.
    pub(super) forgotten: usize,
    /// How many messages could be on their way at the faults so far: each of them may come once more.
    pub(super) exposed: usize,
}

impl Fault {
    /// Any of them.
    pub(super) fn draw(rng: &mut impl Rng) -> Fault {
        match rng.random_range(0..19) {
            0 | 1 => Fault::Kill,
            2 | 3 => Fault::Crash(POINTS.choose(rng).unwrap()),
            4 => Fault::Stall,
            5 => Fault::Replace,
            6 => Fault::Restart(*[Stop::Fast, Stop::Immediate].choose(rng).unwrap()),
            7 => Fault::KillServer,
            8 => Fault::Terminate,
            9 => Fault::KillBackend,
            10 => Fault::Cut,
            11 => Fault::Hole,
            12 => Fault::LoseAnswer(["outbox.claim", "outbox.settle"].choose(rng).unwrap()),
            13 => Fault::CutReceiver,
            14 => Fault::HoleReceiver,
            15 => Fault::CutWriters,
            16 => Fault::HoleWriters,
            17 => Fault::LoseCommit,
            _ => Fault::DiskFull,
        }
    }
}

impl World {
    pub(super) async fn new(arrivals: &Arc<Arrivals>, seed: u64) -> World {
        let cluster = Cluster::start(cluster::Options::default()).await.unwrap();
        let url = cluster.url("postgres");
        let store = Store::new(&config(&url)).unwrap();
        store.migrate(None, false).await.unwrap();
        let answers = Arc::clone(arrivals);
        let options = Options {
            keep: 0,
            keep_bodies: false,
        };
        let receiver =
            Receiver::start_with(options, move |request| answers.answer(request, seed)).unwrap();
        let receiver_proxy = Proxy::start(receiver.port()).await;
        let directory = Directory::new();
        let mut world = World {
            // Once: a relay may be reading it at any time.
            config: directory.write("faults.toml", &configuration(receiver_proxy.port())),
            database: Proxy::start(cluster.port()).await,
            writers: Proxy::start(cluster.port()).await,
            receiver_proxy,
            cluster,
            _receiver: receiver,
            directory,
            relays: Vec::new(),
            started: 0,
            forgotten: 0,
            exposed: 0,
        };
        let (client, _driver) = world.connect().await;
        client.batch_execute(TABLES).await.unwrap();
        for at in 0..RELAYS {
            world.relays.push(None);
            world.start(at, None);
        }
        let end = Instant::now() + SOON;
        while count(&client, "relays").await < i64::try_from(RELAYS).unwrap() {
            assert!(Instant::now() < end, "{}", world.directory.logs());
            sleep(Duration::from_millis(20)).await;
        }
        world
    }

    /// For writers.
    pub(super) fn writers_url(&self) -> String {
        self.writers.url(&self.url())
    }

    /// Not through a proxy.
    fn url(&self) -> String {
        self.cluster.url("postgres")
    }

    pub(super) async fn connect(&self) -> (Client, JoinSet<()>) {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            connection.await.ok();
        });
        (client, driver)
    }

    fn start(&mut self, at: usize, crash: Option<&str>) {
        self.started += 1;
        let name = format!("relay-{at}-{}", self.started);
        let url = self.database.url(&self.url());
        self.relays[at] = Some(
            self.directory
                .run_until_crash(&self.config, &url, &name, crash),
        );
    }

    /// Lets something go wrong, and mends what does not mend itself.
    pub(super) async fn suffer(&mut self, fault: Fault, rng: &mut impl Rng) {
        let at = rng.random_range(0..RELAYS);
        let moment = Duration::from_millis(rng.random_range(0..1500));
        // What is on its way, and what waits behind it in memory and is given back.
        self.exposed += match fault {
            Fault::Replace | Fault::CutWriters | Fault::HoleWriters | Fault::LoseCommit => 0,
            Fault::Kill | Fault::Crash(_) | Fault::Stall => CONCURRENCY,
            _ => CONCURRENCY * RELAYS,
        };
        if matches!(
            fault,
            Fault::Restart(Stop::Immediate) | Fault::KillServer | Fault::KillBackend
        ) {
            self.forgotten += CONCURRENCY * RELAYS;
        }
        match fault {
            Fault::Kill => {
                self.signal(at, Signal::KILL);
                sleep(moment).await;
                self.start(at, None);
            }
            Fault::Crash(point) => {
                self.signal(at, Signal::KILL);
                self.start(at, Some(&format!("{point}:{}", rng.random_range(1..20))));
            }
            Fault::Stall => {
                self.signal(at, Signal::STOP);
                sleep(moment * 4).await;
                self.signal(at, Signal::CONT);
            }
            Fault::Replace => {
                self.signal(at, Signal::TERM);
                if let Some(mut relay) = self.relays[at].take() {
                    relay.end(SOON).await;
                }
                self.start(at, None);
            }
            Fault::Restart(how) => {
                self.cluster.stop(how).await.unwrap();
                sleep(moment).await;
                self.cluster.restart().await.unwrap();
            }
            Fault::KillServer => {
                self.cluster.kill_hard().await.unwrap();
                sleep(moment).await;
                self.cluster.restart().await.unwrap();
            }
            Fault::Terminate => {
                let (client, _driver) = self.connect().await;
                let all = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname is not null";
                client.batch_execute(all).await.unwrap();
            }
            Fault::KillBackend => {
                let (client, mut driver) = self.connect().await;
                let one = "select pid from pg_stat_activity where application_name = 'outbox-relay' limit 1";
                let victim = client.query_opt(one, &[]).await.unwrap();
                if let Some(victim) = victim {
                    let pid = rustix::process::Pid::from_raw(victim.get(0)).unwrap();
                    if rustix::process::kill_process(pid, Signal::KILL).is_ok() {
                        // Until the server has seen it, new connections are let in and cut off then. It had perhaps ended by itself.
                        timeout(Duration::from_secs(5), driver.join_next())
                            .await
                            .ok();
                    }
                }
                self.recovered().await;
            }
            Fault::Cut => self.database.cut(),
            Fault::Hole => {
                self.database.hole(true);
                sleep(moment * 3).await;
                self.database.hole(false);
            }
            Fault::LoseAnswer(word) => self.database.lose_answer_to(word),
            Fault::CutReceiver => self.receiver_proxy.cut(),
            Fault::HoleReceiver => {
                self.receiver_proxy.hole(true);
                sleep(moment).await;
                self.receiver_proxy.hole(false);
            }
            Fault::CutWriters => self.writers.cut(),
            Fault::HoleWriters => {
                self.writers.hole(true);
                sleep(moment).await;
                self.writers.hole(false);
            }
            Fault::LoseCommit => self.writers.lose_answer_to("shop.ledger"),
            Fault::DiskFull => {
                let (client, _driver) = self.connect().await;
                let full = "update shop.disk set full_until = clock_timestamp() + $1::float8 * interval '1 s'";
                let time = moment.as_secs_f64();
                client.execute(full, &[&time]).await.unwrap();
                sleep(moment).await;
            }
        }
    }

    /// Everybody is well again, and at work.
    pub(super) async fn heal(&mut self) {
        self.database.hole(false);
        self.receiver_proxy.hole(false);
        self.recovered().await;
        for at in 0..RELAYS {
            self.signal(at, Signal::KILL);
            self.start(at, None);
        }
        self.exposed += CONCURRENCY * RELAYS;
    }

    /// Stops all relays in good order. Panics where one does not end well.
    pub(super) async fn stop(&mut self) {
        for relay in self.relays.iter().flatten() {
            relay.signal(Signal::TERM);
        }
        for mut relay in self.relays.drain(..).flatten() {
            let status = relay.end(SOON).await;
            assert_eq!(status.code(), Some(0), "{}", relay.log());
        }
    }

    /// What the relays said that should never be said.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.directory.lines_with("panicked")
    }

    fn signal(&self, at: usize, signal: Signal) {
        if let Some(relay) = &self.relays[at] {
            relay.try_signal(signal);
        }
    }

    /// Waits until the server takes connections.
    async fn recovered(&self) {
        while tokio_postgres::connect(&self.url(), NoTls).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn configuration(port: u16) -> String {
    let endpoint = |name| {
        format!(
            "[[endpoints]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}/{name}\"\nconcurrency = {}\ntimeout = \"3s\"\n\
             breaker = {{ enabled = false }}\nretry = {{ base = \"20ms\", cap = \"200ms\", max_attempts = 1000 }}\n\n",
            CONCURRENCY / 2
        )
    };
    let (shop, mirror) = (endpoint("shop"), endpoint("mirror"));
    format!(
        "[relay]\nlease = \"2s\"\npoll = \"50ms\"\nmax_lost = 100\ngrace = \"2s\"\n\n{shop}{mirror}\
         [[routes]]\ntopic = \"ordered\"\nto = [\"shop\"]\norder = \"key\"\non_dead = \"continue\"\n\n\
         [[routes]]\ntopic = \"strict\"\nto = [\"shop\"]\norder = \"key\"\non_dead = \"hold\"\n\n\
         [[routes]]\ntopic = \"both\"\nto = [\"shop\", \"mirror\"]\norder = \"key\"\non_dead = \"continue\"\n\n\
         [[routes]]\ntopic = \"**\"\nto = [\"shop\"]\n"
    )
}
