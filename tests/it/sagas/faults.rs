//! 500 sagas, three participants that fail in every way, relays that are killed between any two steps: each saga ends as its
//! participants' ledger says.
#![allow(
    clippy::print_stdout,
    reason = "the seed and what happened are what one looks at"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::lab::receiver::{Receiver, Reply, Request};
use rand::{
    RngExt, SeedableRng,
    rngs::{StdRng, SysRng},
    seq::IndexedRandom,
};
use rustix::process::Signal;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::header;
use crate::support::{
    binary::{Directory, Process},
    database, eventually,
    rows::{assert_nothing_left, count, one},
};

const SAGAS: usize = 500;

/// The last step but one is the pivot; what is behind it must be done.
const PLAN: &str = r#"
[[retries]]
name = "few"
base = "50ms"
cap = "200ms"
max_attempts = 3

[[sagas]]
name = "order"
steps = [
    { name = "reserve", to = "stock", do = "/reserve", undo = "/release" },
    { name = "charge", to = "pay", do = "/charge", undo = "/refund", retry = "few", undo_retry = "few", on_exhausted = "compensate" },
    { name = "ship", to = "ship", do = "/ship", pivot = true, retry = "few" },
    { name = "notify", to = "stock", do = "/notify" },
]
"#;

/// Where a relay may end itself: `relay/crash.rs` has them all.
const POINTS: [&str; 7] = [
    "registered",
    "claim",
    "claimed",
    "started",
    "answered",
    "settle",
    "settled",
];

/// What a participant has done of one step of one saga.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Nothing,
    Refused,
    Done,
    Undone,
}

#[derive(Debug, Default)]
struct Entry {
    part: Part,
    /// By phase.
    keys: BTreeMap<String, BTreeSet<String>>,
    /// A request to do it is being answered until then.
    busy: Option<Instant>,
}

struct Ledger {
    entries: BTreeMap<(Uuid, String), Entry>,
    complaints: Vec<String>,
    rng: StdRng,
    healthy: bool,
    requests: u64,
}

impl Ledger {
    /// The participant's part, and its answer.
    fn asked(&mut self, request: &Request) -> Reply {
        self.requests += 1;
        let saga: Uuid = header(request, "saga-id").parse().unwrap();
        let (step, phase) = (header(request, "saga-step"), header(request, "saga-phase"));
        let now = Instant::now();
        let fate = if self.healthy {
            99
        } else {
            self.rng.random_range(0..100)
        };
        let delay = Duration::from_millis(self.rng.random_range(50..600));
        let entry = self.entries.entry((saga, step.into())).or_default();
        let key = header(request, "idempotency-key").to_owned();
        entry.keys.entry(phase.into()).or_default().insert(key);
        let what = format!("{saga} {step} {phase}");
        if phase == "undo" && entry.busy.is_some_and(|until| until > now) {
            self.complaints.push(format!("{what}: its do is in flight"));
        }
        match fate {
            // Before anything is done.
            0..10 => return Reply::status(503),
            10..14 => return Reply::hang_up(),
            _ => {}
        }
        // The business's own no: the same whenever it is asked.
        let no = (saga.as_bytes()[0].is_multiple_of(10) && step == "charge")
            || (saga.as_bytes()[0] % 10 == 1 && step == "ship");
        let answer = match (phase, entry.part) {
            ("do", Part::Undone) => {
                self.complaints.push(format!("{what}: after its undo"));
                422
            }
            ("do", _) if no => {
                entry.part = Part::Refused;
                422
            }
            ("do", _) => {
                entry.part = Part::Done;
                200
            }
            (_, Part::Nothing | Part::Refused) => {
                entry.part = Part::Undone;
                410
            }
            (_, Part::Done | Part::Undone) => {
                entry.part = Part::Undone;
                200
            }
        };
        // Done, and the relay does not learn of it.
        match fate {
            14..20 => Reply::hang_up(),
            20..26 => Reply::status(503),
            26..40 => {
                entry.busy = (phase == "do").then_some(now + delay);
                Reply::status(answer).body("{}").after(delay)
            }
            _ => Reply::status(answer).body("{}"),
        }
    }

    fn part(&self, saga: Uuid, step: &str) -> Part {
        let entry = self.entries.get(&(saga, step.into()));
        entry.map_or(Part::Nothing, |entry| entry.part)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "from which seed is the caller's to say"
)]
fn seed() -> u64 {
    let given = env::var("OUTBOX_FAULTS_SEED").ok();
    given.map_or_else(
        || StdRng::try_from_rng(&mut SysRng).unwrap().random(),
        |text| text.parse().unwrap(),
    )
}

/// Commits sagas one by one, some with a deadline; one in ten is rolled back. Returns those that never were.
async fn write(client: Client, seed: u64) -> Vec<Uuid> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut never = Vec::new();
    for n in 0..SAGAS {
        let id: Uuid = Uuid::from_u128(rng.random());
        let deadline: Option<f64> = (n % 7 == 0).then(|| rng.random_range(0.5..8.0));
        let insert = "insert into outbox.sagas (id, name, key, input, deadline_at)
                      values ($1, 'order', $2, '{\"n\": 1}', now() + make_interval(secs => $3))";
        let rolled_back = n % 10 == 9;
        client.batch_execute("begin").await.unwrap();
        client
            .execute(insert, &[&id, &n.to_string(), &deadline])
            .await
            .unwrap();
        if rolled_back {
            client.batch_execute("rollback").await.unwrap();
            never.push(id);
        } else {
            client.batch_execute("commit").await.unwrap();
        }
        sleep(Duration::from_millis(rng.random_range(0..30))).await;
    }
    never
}

/// Cancels one of those that are on their way; that it is too late is no fault.
async fn cancel(client: &Client) {
    let one =
        "select id from outbox.sagas where status in ('new', 'running') order by random() limit 1";
    if let Some(row) = client.query_opt(one, &[]).await.unwrap() {
        let id: Uuid = row.get(0);
        let cancelled = client
            .query("select outbox.cancel_saga($1, 'a test')", &[&id])
            .await;
        if let Err(error) = cancelled {
            assert_eq!(error.code().unwrap().code(), "55000", "{error:?}");
        }
    }
}

async fn all_ended(client: &Client) {
    let left = "sagas where status in ('new', 'running', 'compensating')";
    let deadline = Duration::from_secs(90);
    eventually("all sagas have ended", deadline, async || {
        count(client, left).await == 0
    })
    .await;
}

/// Compares what each saga says with what its participants have done.
async fn agree(client: &Client, ledger: &Mutex<Ledger>) -> BTreeMap<String, usize> {
    let rows = client
        .query("select id, status from outbox.sagas", &[])
        .await
        .unwrap();
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.complaints, Vec::<String>::new());
    let mut ends = BTreeMap::new();
    for row in &rows {
        let (id, status): (Uuid, String) = (row.get(0), row.get(1));
        let part = |step| ledger.part(id, step);
        let parts = ["reserve", "charge", "ship", "notify"].map(part);
        match &*status {
            "succeeded" => assert_eq!(parts, [Part::Done; 4], "{id} {status}"),
            "compensated" => {
                assert!(!parts.contains(&Part::Done), "{id} {status}: {parts:?}");
            }
            "parked" => {}
            other => panic!("{id} is {other}"),
        }
        for step in ["reserve", "charge", "ship", "notify"] {
            let keys = ledger
                .entries
                .get(&(id, step.into()))
                .map(|entry| &entry.keys);
            for (phase, keys) in keys.into_iter().flatten() {
                assert_eq!(keys.len(), 1, "{id} {step} {phase}: {keys:?}");
            }
        }
        *ends.entry(status).or_default() += 1;
    }
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_each_saga_ends_as_its_participants_say() {
    let seed = seed();
    println!("OUTBOX_FAULTS_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let ledger = Arc::new(Mutex::new(Ledger {
        entries: BTreeMap::new(),
        complaints: Vec::new(),
        rng: StdRng::seed_from_u64(rng.random()),
        healthy: false,
        requests: 0,
    }));
    let database = database().await;
    let client = database.connect().await;
    let participant = || {
        let ledger = ledger.clone();
        Receiver::start(move |request| ledger.lock().unwrap().asked(request)).unwrap()
    };
    let participants = ["stock", "pay", "ship"].map(|name| (name, participant()));
    let endpoints: String = participants
        .iter()
        .map(|(name, receiver)| {
            let url = receiver.url("/");
            format!(
                "[[endpoints]]\nname = \"{name}\"\nurl = \"{url}\"\ntimeout = \"2s\"\nconnect_timeout = \"1s\"\nbreaker = {{ enabled = false }}\n\
                 retry = {{ base = \"50ms\", cap = \"200ms\", max_attempts = 12 }}\n"
            )
        })
        .collect();
    let directory = Directory::new();
    let config = directory.config(&participants[0].1.url("/"), &format!("{PLAN}{endpoints}"));

    let start = |name: &str, point: Option<&str>| {
        directory.run_until_crash(&config, &database.url, name, point)
    };
    let mut relays: Vec<Process> = vec![start("relay-0", None), start("relay-1", None)];
    let mut writer = JoinSet::new();
    writer.spawn(write(database.connect().await, rng.random()));
    let mut kills = 0;
    let mut written = None;
    while written.is_none() {
        written = writer.try_join_next();
        sleep(Duration::from_millis(rng.random_range(50..500))).await;
        match rng.random_range(0..3) {
            0 => cancel(&client).await,
            _ => {
                kills += 1;
                let at = rng.random_range(0..relays.len());
                let point = POINTS.choose(&mut rng).unwrap();
                let point = format!("{point}:{}", rng.random_range(1..20));
                let crash = rng.random_bool(0.5).then_some(&*point);
                relays[at].try_signal(Signal::KILL);
                relays[at] = start(&format!("relay-{}", kills + 1), crash);
            }
        }
    }
    let never = written.unwrap().unwrap();
    for relay in &relays {
        relay.try_signal(Signal::KILL);
    }
    drop(relays);
    let mut relays = [start("last-0", None), start("last-1", None)];
    all_ended(&client).await;
    let ends = agree(&client, &ledger).await;
    println!(
        "{kills} kills, {} requests: {ends:?}",
        ledger.lock().unwrap().requests
    );
    for id in &never {
        let asked = ledger
            .lock()
            .unwrap()
            .entries
            .keys()
            .any(|(saga, _)| saga == id);
        assert!(!asked, "{id} was rolled back");
    }

    // The participants are well again, and an operator goes on with what is parked.
    ledger.lock().unwrap().healthy = true;
    let resume =
        "select count(outbox.resume_saga(s.id)) from outbox.sagas s where s.status = 'parked'";
    let resumed: i64 = one(&client, resume).await;
    all_ended(&client).await;
    let ends = agree(&client, &ledger).await;
    println!("{resumed} resumed: {ends:?}");
    assert_eq!(ends.get("parked"), None);
    assert!(
        ends["succeeded"] > 100 && ends["compensated"] > 50,
        "{ends:?}"
    );
    for relay in &mut relays {
        relay.signal(Signal::TERM);
        assert!(relay.end(Duration::from_secs(20)).await.success());
    }
    assert_nothing_left(&client).await;
    assert_eq!(count(&client, "dead_letters").await, 0);
}
