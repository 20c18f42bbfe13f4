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
    create table shop.ledger (id uuid primary key, topic text not null, key text, seq bigint not null, scheduled boolean not null);
    create table shop.disk (full_until timestamptz not null);
    insert into shop.disk values ('-infinity');
    create table shop.exempt (id uuid not null);
    -- There is no room for the history: whatever became of a message then has no line.
    create function shop.full() returns trigger language plpgsql as $$ begin
        if (select clock_timestamp() < full_until from shop.disk) then
            raise 'could not extend file' using errcode = 'disk_full'; end if;
        return new; end $$;
    create function shop.tell() returns trigger language plpgsql as $$ begin
        -- A statement that was under way when there was room again may have been refused before.
        if (select clock_timestamp() < full_until + interval '5 s' from shop.disk) then
            insert into shop.exempt values (old.id); end if;
        return null; end $$;
    create trigger full_disk before insert on outbox.attempts for each row execute function shop.full();
    create trigger tell after delete or update on outbox.messages for each row execute function shop.tell()";

/// Where a topic goes.
fn endpoints(topic: &str) -> &'static [&'static str] {
    match topic {
        "both" => &["shop", "mirror"],
        _ => &["shop"],
    }
}

/// A message on its way to one endpoint.
type Delivery = (Uuid, &'static str);

/// Messages that the receiver refuses for good have this in their payload.
const POISON: &str = "poison";

/// One request as the receiver saw it.
#[derive(Debug)]
struct Arrival {
    of: Delivery,
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
    /// Messages that somebody tried while the history could not be written.
    pub(super) exempt: usize,
    /// Requests that the history does not know of.
    pub(super) untold: usize,
    /// Messages that were accepted again after they had been accepted.
    pub(super) duplicates: usize,
}

impl Arrivals {
    /// Answers a request, mostly well, and remembers it.
    pub(super) fn answer(&self, request: &Request, seed: u64) -> Reply {
        let header = |name| request.header(name).unwrap();
        let uuid = |name| Uuid::parse_str(header(name).trim_matches('"')).unwrap();
        let (key, id) = (uuid("idempotency-key"), uuid("outbox-message-id"));
        let to = endpoints(header("outbox-topic"));
        let name = to.iter().find(|name| request.path == format!("/{name}"));
        let name = *name.expect("it goes where its topic goes");
        let ours = match to.len() {
            1 => id,
            _ => Uuid::new_v5(&id, name.as_bytes()),
        };
        assert_eq!(key, ours, "its key");
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
            of: (id, name),
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
        let topic = match rng.random_range(0..10) {
            0..4 => "ordered",
            4..6 => "strict",
            6..8 => "both",
            _ => "loose",
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
        // The proxy's trap looks for it.
        "COMMIT"
    };
    client.batch_execute(end).await
}

/// Lets keys go on that a dead message holds, until none does; exactly those of dead heads are held. Returns what was discarded.
pub(super) async fn open_keys(client: &Client, deadline: Duration) -> HashSet<Uuid> {
    let mut discarded = HashSet::new();
    loop {
        all_over(client, deadline).await;
        let heads = "select id, topic, key from outbox.dead_letters
                      where topic = 'strict' and key is not null and id <> all ($1::uuid[]) order by key";
        let held =
            "select id, topic, key from outbox.held_keys where id <> all ($1::uuid[]) order by key";
        let known: Vec<Uuid> = discarded.iter().copied().collect();
        let list = async |query: &str| -> Vec<(Uuid, String, String)> {
            let rows = client.query(query, &[&known]).await.unwrap();
            let each = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
            each.collect()
        };
        let (heads, held) = (list(heads).await, list(held).await);
        assert_eq!(held, heads, "held keys, and dead heads");
        if heads.is_empty() {
            return discarded;
        }
        for (id, ..) in heads {
            let discard = "select outbox.discard($1, p_why => 'it was poison', p_by => 'the test')";
            let gone: i32 = client.query_one(discard, &[&id]).await.unwrap().get(0);
            assert_eq!(gone, 1, "{id}");
            discarded.insert(id);
        }
    }
}

/// Compares the two sides, when all is over and these were discarded.
pub(super) async fn verdict(
    client: &Client,
    arrivals: &Arrivals,
    tried: &Tried,
    discarded: &HashSet<Uuid>,
) -> Verdict {
    let ids = async |query: &str| -> HashSet<Uuid> {
        let rows = client.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    // What the outbox says of deliveries, and how often.
    let deliveries = async |query: &str| -> HashMap<(Uuid, String), usize> {
        let mut all = HashMap::new();
        for row in client.query(query, &[]).await.unwrap() {
            *all.entry((row.get(0), row.get(1))).or_default() += 1;
        }
        all
    };
    let committed = ids("select id from shop.ledger").await;
    let exempt = ids("select id from shop.exempt").await;
    let mut dead =
        deliveries("select id, endpoint from outbox.dead_letters where reason = 'rejected'").await;
    dead.extend(discarded.iter().map(|id| ((*id, "shop".to_owned()), 1)));
    let other_deaths = ids("select id from outbox.dead_letters where reason <> 'rejected'").await;
    assert!(
        other_deaths.is_empty(),
        "dead for no good reason: {other_deaths:?}"
    );
    let arrivals = std::mem::take(&mut *arrivals.0.lock().unwrap());

    // Nothing that was committed is lost, nothing that was rolled back was ever sent.
    let mut expected: HashSet<Delivery> = HashSet::new();
    for row in client
        .query("select id, topic from shop.ledger", &[])
        .await
        .unwrap()
    {
        let to = endpoints(row.get(1)).iter();
        expected.extend(to.map(|to| (row.get::<_, Uuid>(0), *to)));
    }
    let mut done: HashMap<Delivery, usize> = HashMap::new();
    for arrival in &arrivals {
        assert!(
            expected.contains(&arrival.of),
            "{:?} was never committed",
            arrival.of
        );
        if arrival.done.is_some() {
            *done.entry(arrival.of).or_default() += 1;
        }
    }
    let lost: Vec<_> = expected
        .iter()
        .filter(|of| !done.contains_key(*of))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} were lost: {lost:?}",
        lost.len(),
        expected.len()
    );

    in_order(client, &arrivals).await;

    // The history knows how each of them ended, and the archive has what was delivered, once.
    let ends = deliveries(
        "select id, endpoint from outbox.attempts where settlement in ('delivered', 'dead')",
    )
    .await;
    let archived = deliveries("select id, endpoint from outbox.delivered").await;
    for (id, to) in expected.iter().filter(|(id, _)| !exempt.contains(id)) {
        let of = (*id, (*to).to_owned());
        assert_eq!(ends.get(&of), Some(&1), "{of:?}: its ends in the history");
        let kept = (archived.get(&of), dead.get(&of));
        assert!(
            matches!(kept, (Some(1), None) | (None, Some(1))),
            "{of:?}: in the archive, among the dead: {kept:?}"
        );
    }
    // ... and of each request, or that its relay died with it.
    let lines =
        deliveries("select id, endpoint from outbox.attempts where relay <> 'the test'").await;
    let mut requests: HashMap<Delivery, usize> = HashMap::new();
    for arrival in &arrivals {
        *requests.entry(arrival.of).or_default() += 1;
    }
    let untold = requests
        .into_iter()
        .filter(|((id, _), _)| !exempt.contains(id))
        .map(|((id, to), requests)| {
            let lines = lines.get(&(id, to.to_owned())).copied().unwrap_or_default();
            requests.saturating_sub(lines)
        })
        .sum();

    Verdict {
        rolled_back: tried.0.lock().unwrap().difference(&committed).count(),
        committed: committed.len(),
        dead: dead.len(),
        requests: arrivals.len(),
        exempt: exempt.len(),
        untold,
        duplicates: done.values().map(|times| times - 1).sum(),
    }
}

/// No message of a key is sent before each earlier one was answered for good: nor beside it.
async fn in_order(client: &Client, arrivals: &[Arrival]) {
    // What was scheduled joins its key's order when it is due, wherever that is.
    let query = "select id, topic, key from shop.ledger
                  where topic <> 'loose' and key is not null and not scheduled order by seq";
    let rows = client.query(query, &[]).await.unwrap();
    let mut keys: HashMap<(String, String, &str), Vec<Delivery>> = HashMap::new();
    for row in rows {
        let (id, topic, key): (Uuid, String, String) = (row.get(0), row.get(1), row.get(2));
        for to in endpoints(&topic) {
            let key = (topic.clone(), key.clone(), *to);
            keys.entry(key).or_default().push((id, to));
        }
    }
    let mut first_done: HashMap<Delivery, Instant> = HashMap::new();
    for arrival in arrivals {
        if let Some(at) = arrival.done {
            let first = first_done.entry(arrival.of).or_insert(at);
            *first = at.min(*first);
        }
    }
    let mut sent: HashMap<Delivery, Instant> = HashMap::new();
    for arrival in arrivals {
        let first = sent.entry(arrival.of).or_insert(arrival.at);
        *first = arrival.at.min(*first);
    }
    for (key, ids) in keys {
        for pair in ids.windows(2) {
            let (before, after) = (first_done[&pair[0]], sent[&pair[1]]);
            assert!(
                after >= before,
                "{key:?}: {:?} was sent {:?} too early",
                pair[1],
                before - after
            );
        }
    }
}

/// Waits until nothing is pending but what a held key keeps, and nothing is leased.
pub(super) async fn all_over(client: &Client, deadline: Duration) {
    let left =
        "select (select count(*) from outbox.messages m where not exists (select from outbox.held_keys h
                   where (h.topic, h.lane_endpoint, h.key) = (m.topic, m.endpoint, m.key)))
              + (select count(*) from outbox.leases)";
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
