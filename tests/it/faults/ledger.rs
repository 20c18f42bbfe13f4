//! What was committed, what came, and whether the two agree.
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::lab::receiver::{Reply, Request};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// The business's own table: a row for each message, in the transaction of its insert.
pub(super) const TABLES: &str = "
    create schema shop;
    create table shop.ledger (id uuid primary key, topic text not null, key text, seq bigint not null, scheduled boolean not null)";

/// Messages that the receiver refuses for good have this in their payload.
const POISON: &str = "poison";

/// One request as the receiver saw it.
#[derive(Debug)]
struct Arrival {
    id: Uuid,
    at: Instant,
    /// When its answer was given, if that was one that ends the matter.
    done: Option<Instant>,
}

/// The receiver's side.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<Vec<Arrival>>);

/// The writers' side: what they tried to commit, whatever became of it.
#[derive(Default)]
pub(super) struct Tried(Mutex<HashSet<Uuid>>);

/// What a run came to, to be printed.
#[derive(Debug)]
#[allow(dead_code, reason = "Debug shows them")]
pub(super) struct Verdict {
    pub(super) committed: usize,
    pub(super) rolled_back: usize,
    pub(super) dead: usize,
    pub(super) requests: usize,
    /// Messages that were accepted again after they had been accepted.
    pub(super) duplicates: usize,
}

impl Arrivals {
    /// Answers a request, mostly well, and remembers it.
    pub(super) fn answer(&self, request: &Request, seed: u64) -> Reply {
        let key = request.header("idempotency-key").unwrap();
        let id = Uuid::parse_str(key.trim_matches('"')).unwrap();
        // Another one for each request, and the same in each run of a seed whose requests come in the same order.
        let mut rng = StdRng::seed_from_u64(seed ^ request.number.wrapping_mul(0x9E37_79B9));
        let delay = Duration::from_millis(rng.random_range(0..20));
        let poison = request
            .body
            .windows(POISON.len())
            .any(|part| part == POISON.as_bytes());
        let (reply, ends) = match rng.random_range(0..200) {
            0 => (Reply::hang_up(), false),
            1 => (Reply::never(), false),
            2 => (Reply::status(200).body("lost on the way").reset(), false),
            3 => (
                Reply::status(200).body("slow").drip(Duration::from_secs(5)),
                false,
            ),
            4..12 => (Reply::status(503), false),
            12 => (Reply::status(429).header("retry-after", "0"), false),
            _ if poison => (Reply::status(422), true),
            _ => (Reply::status(200).after(delay), true),
        };
        self.0.lock().unwrap().push(Arrival {
            id,
            at: request.at,
            done: ends.then(|| request.at + if poison { Duration::ZERO } else { delay }),
        });
        reply
    }
}

/// Commits messages until `end`, some of them under keys of its own, and rolls some back.
pub(super) async fn write(url: String, writer: u64, seed: u64, end: Instant, tried: Arc<Tried>) {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(writer));
    while Instant::now() < end {
        let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let transactions = async {
            while Instant::now() < end
                && transaction(&client, writer, &mut rng, &tried).await.is_ok()
            {}
        };
        tokio::select! {
            () = transactions => {}
            // The server is gone: whether it committed the last one it knows itself.
            _ = connection => {}
        }
    }
}

async fn transaction(
    client: &Client,
    writer: u64,
    rng: &mut impl Rng,
    tried: &Tried,
) -> Result<(), tokio_postgres::Error> {
    // What is written must be delivered one by one under its key, by a receiver that now and then takes seconds.
    sleep(Duration::from_millis(rng.random_range(20..80))).await;
    client.batch_execute("begin").await?;
    for _ in 0..rng.random_range(1..5) {
        let id = Uuid::from_u128(rng.random());
        tried.0.lock().unwrap().insert(id);
        let key = rng
            .random_bool(0.8)
            .then(|| format!("{writer}.{}", rng.random_range(0..6)));
        let topic = if rng.random_bool(0.7) {
            "ordered"
        } else {
            "loose"
        };
        let what = if rng.random_bool(0.02) {
            POISON
        } else {
            "fine"
        };
        let later = rng.random_bool(0.05).then(|| rng.random_range(0.0..1.0));
        client
            .execute(
                "with m as (
                     insert into outbox.messages (id, topic, key, payload, due_at)
                     values ($1, $2, $3, json_build_object('what', $4::text), now() + $5::float8 * interval '1 s')
                     returning id, topic, key, seq)
                 insert into shop.ledger select id, topic, key, seq, $5::float8 is not null from m",
                &[&id, &topic, &key, &what, &later],
            )
            .await?;
    }
    if rng.random_bool(0.3) {
        sleep(Duration::from_millis(rng.random_range(0..60))).await;
    }
    let end = if rng.random_bool(0.1) {
        "rollback"
    } else {
        "commit"
    };
    client.batch_execute(end).await
}

/// Compares the two sides, when all is over. `gaps`: the history was broken for a while, so it may lack something.
pub(super) async fn verdict(
    client: &Client,
    arrivals: &Arrivals,
    tried: &Tried,
    gaps: bool,
) -> Verdict {
    let ids = async |query: &str| -> HashSet<Uuid> {
        let rows = client.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let committed = ids("select id from shop.ledger").await;
    let dead = ids("select id from outbox.dead_letters where reason = 'rejected'").await;
    let other_deaths = ids("select id from outbox.dead_letters where reason <> 'rejected'").await;
    assert!(
        other_deaths.is_empty(),
        "dead for no good reason: {other_deaths:?}"
    );
    let arrivals = std::mem::take(&mut *arrivals.0.lock().unwrap());

    // Nothing that was committed is lost, nothing that was rolled back was ever sent.
    let mut done: HashMap<Uuid, usize> = HashMap::new();
    for arrival in &arrivals {
        assert!(
            committed.contains(&arrival.id),
            "{} was never committed",
            arrival.id
        );
        if arrival.done.is_some() {
            *done.entry(arrival.id).or_default() += 1;
        }
    }
    let lost: Vec<_> = committed
        .iter()
        .filter(|id| !done.contains_key(*id))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} were lost: {lost:?}",
        lost.len(),
        committed.len()
    );

    in_order(client, &arrivals).await;

    // The history knows how each of them ended, and the archive has what was delivered.
    let without = "select l.id from shop.ledger l where not exists (
                       select from outbox.attempts a where a.id = l.id and a.settlement in ('delivered', 'dead'))";
    let untold = ids(without).await;
    let archived = ids("select id from outbox.delivered").await;
    let missing: Vec<_> = committed
        .iter()
        .filter(|id| !dead.contains(id) && !archived.contains(id))
        .collect();
    assert!(gaps || untold.is_empty(), "the history lacks {untold:?}");
    assert!(gaps || missing.is_empty(), "the archive lacks {missing:?}");

    Verdict {
        rolled_back: tried.0.lock().unwrap().difference(&committed).count(),
        committed: committed.len(),
        dead: dead.len(),
        requests: arrivals.len(),
        duplicates: done.values().map(|times| times - 1).sum(),
    }
}

/// No message of a key is sent before each earlier one was answered for good: nor beside it.
async fn in_order(client: &Client, arrivals: &[Arrival]) {
    // What was scheduled joins its key's order when it is due, wherever that is.
    let query = "select id, key from shop.ledger
                  where topic = 'ordered' and key is not null and not scheduled order by seq";
    let rows = client.query(query, &[]).await.unwrap();
    let mut keys: HashMap<String, Vec<Uuid>> = HashMap::new();
    for row in rows {
        keys.entry(row.get("key")).or_default().push(row.get("id"));
    }
    let mut first_done: HashMap<Uuid, Instant> = HashMap::new();
    for arrival in arrivals {
        if let Some(at) = arrival.done {
            let first = first_done.entry(arrival.id).or_insert(at);
            *first = at.min(*first);
        }
    }
    let mut sent: HashMap<Uuid, Instant> = HashMap::new();
    for arrival in arrivals {
        let first = sent.entry(arrival.id).or_insert(arrival.at);
        *first = arrival.at.min(*first);
    }
    for (key, ids) in keys {
        for pair in ids.windows(2) {
            let (before, after) = (first_done[&pair[0]], sent[&pair[1]]);
            assert!(
                after >= before,
                "{key}: {} was sent {:?} too early",
                pair[1],
                before - after
            );
        }
    }
}

/// Waits until nothing is pending and nothing is leased.
pub(super) async fn all_over(client: &Client, deadline: Duration) {
    let left =
        "select (select count(*) from outbox.messages) + (select count(*) from outbox.leases)";
    let end = Instant::now() + deadline;
    while client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        if Instant::now() > end {
            panic!("this is left after {deadline:?}: {}", remains(client).await);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// What is left, for the one who has to find out why.
async fn remains(client: &Client) -> String {
    let all = "select jsonb_pretty(jsonb_build_object(
                   'messages', (select count(*) from outbox.messages),
                   'first', (select jsonb_agg(to_jsonb(m) - 'payload') from (select * from outbox.messages order by seq limit 3) m),
                   'leases', (select jsonb_agg(l) from outbox.leases l), 'relays', (select jsonb_agg(r) from outbox.relays r),
                   'endpoints', (select jsonb_agg(e) from outbox.endpoints e),
                   'history', (select jsonb_agg(a) from (select started_at, outcome, error from outbox.attempts order by started_at desc limit 5) a)))";
    client.query_one(all, &[]).await.unwrap().get(0)
}
