//! Order per key: over relays that fail, die and stall, and writers that commit late.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::{
    lab::receiver::{Options, Receiver, Reply, Request},
    relay::Relay,
    route::{OnDead, Order, Pattern, Route, Routes},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;

use crate::support::{
    Database, database, eventually,
    relay::{Running, endpoint, relay, start, until_empty},
};

/// What the receiver saw of each key: the numbers that it accepted, in that order, and what was wrong.
#[derive(Default)]
struct Ledger {
    accepted: BTreeMap<String, Vec<u64>>,
    out_of_order: Vec<String>,
    duplicates: u64,
}

impl Ledger {
    /// A message of `key` with number `n` (from 1, without gaps) is accepted.
    fn accept(&mut self, key: &str, n: u64) {
        let numbers = self.accepted.entry(key.to_owned()).or_default();
        let last = numbers.iter().max().copied().unwrap_or(0);
        if numbers.contains(&n) {
            self.duplicates += 1;
        } else if n != last + 1 {
            self.out_of_order.push(format!("{key}: {n} after {last}"));
        }
        numbers.push(n);
    }
}

/// `{"k": "k7", "n": 12}`.
fn read(request: &Request) -> (String, u64) {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    (
        body["k"].as_str().unwrap().to_owned(),
        body["n"].as_u64().unwrap(),
    )
}

/// A receiver that fails `failing` of a hundred and takes up to `slowest` milliseconds.
fn receiver(seed: u64, failing: u32, slowest: u64) -> (Receiver, Arc<Mutex<Ledger>>) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let written = ledger.clone();
    let dice = Mutex::new(StdRng::seed_from_u64(seed));
    let script = move |request: &Request| {
        let (key, n) = read(request);
        let (roll, delay) = {
            let mut dice = dice.lock().unwrap();
            (
                dice.random_range(0..100_u32),
                dice.random_range(0..=slowest),
            )
        };
        let mut ledger = written.lock().unwrap();
        let delay = Duration::from_millis(delay);
        match roll {
            roll if roll < failing / 2 => Reply::hang_up(),
            roll if roll < failing => Reply::status(503).after(delay),
            _ => {
                ledger.accept(&key, n);
                Reply::status(200).after(delay)
            }
        }
    };
    let options = Options {
        keep: 0,
        keep_bodies: false,
    };
    (Receiver::start_with(options, script).unwrap(), ledger)
}

fn in_order(database: &Database, receiver: &Receiver, on_dead: OnDead) -> Relay {
    let mut relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    let topic = Pattern::parse("**").unwrap();
    let order = Order::Key(on_dead);
    relay.routes = Routes::new(vec![Route {
        topic,
        to: vec!["shop".into()],
        order,
    }]);
    relay.config.lease = Duration::from_secs(1);
    relay
}

/// Writes messages of keys `k0`… in numbers that rise by one per key. A key's writers serialise on its aggregate's row, as
/// an application does; some roll back, some commit late.
async fn write(database: &Database, writer: u64, writers: u64, keys: u64, each: u64) {
    let client = database.connect().await;
    let mut dice = StdRng::seed_from_u64(writer);
    for n in 0..each * keys / writers {
        let key = format!("k{}", dice.random_range(0..keys));
        client.batch_execute("begin").await.unwrap();
        let bump = "update aggregate set n = n + 1 where key = $1 returning n";
        let number: i64 = client.query_one(bump, &[&key]).await.unwrap().get(0);
        let insert = "insert into outbox.messages (topic, key, payload)
                      values ('t', $1, json_build_object('k', $1::text, 'n', $2::bigint))";
        client.execute(insert, &[&key, &number]).await.unwrap();
        if n % 7 == 0 {
            // A slow commit: its seq is old by then.
            sleep(Duration::from_millis(dice.random_range(1..20))).await;
        }
        let end = if dice.random_range(0..10) == 0 {
            "rollback"
        } else {
            "commit"
        };
        client.batch_execute(end).await.unwrap();
    }
}

async fn aggregates(database: &Database, keys: u64) {
    let client = database.connect().await;
    let table = format!(
        "create table aggregate (key text primary key, n bigint not null default 0);
         insert into aggregate (key) select 'k' || i from generate_series(0, {keys} - 1) i"
    );
    client.batch_execute(&table).await.unwrap();
}

/// Waits until all is delivered, and compares what was accepted with what was committed.
async fn judge(database: &Database, ledger: &Mutex<Ledger>) {
    let client = database.connect().await;
    eventually("all is delivered", Duration::from_secs(60), async || {
        let row = client
            .query_one("select count(*) from outbox.messages", &[])
            .await
            .unwrap();
        row.get::<_, i64>(0) == 0
    })
    .await;
    let rows = client
        .query("select key, n from aggregate where n > 0", &[])
        .await
        .unwrap();
    let ledger = ledger.lock().unwrap();
    assert!(ledger.out_of_order.is_empty(), "{:?}", ledger.out_of_order);
    for row in rows {
        let (key, committed): (String, i64) = (row.get(0), row.get(1));
        let accepted: BTreeSet<u64> = ledger.accepted[&key].iter().copied().collect();
        assert_eq!(accepted.len(), usize::try_from(committed).unwrap(), "{key}");
    }
}

#[tokio::test]
async fn four_relays_keep_the_order_of_thirty_keys_and_send_nothing_twice() {
    let database = database().await;
    aggregates(&database, 30).await;
    let (receiver, ledger) = receiver(1, 15, 3);
    let relays: Vec<Running> = (0..4)
        .map(|_| start(in_order(&database, &receiver, OnDead::Hold)))
        .collect();
    let writers: Vec<_> = (0..4)
        .map(|writer| write(&database, writer, 4, 30, 60))
        .collect();
    let (a, b, c, d) = {
        let mut writers = writers.into_iter();
        let mut next = || writers.next().unwrap();
        (next(), next(), next(), next())
    };
    tokio::join!(a, b, c, d);
    judge(&database, &ledger).await;
    assert_eq!(ledger.lock().unwrap().duplicates, 0);
    for relay in relays {
        relay.stop().await;
    }
    let client = database.connect().await;
    let left =
        "select (select count(*) from outbox.leases) + (select count(*) from outbox.held_keys)";
    assert_eq!(
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
}

/// Relays die without a word, again and again; those that come take over.
#[tokio::test]
async fn order_holds_while_relays_die() {
    let database = database().await;
    aggregates(&database, 10).await;
    let (receiver, ledger) = receiver(2, 10, 10);
    let mut relays = JoinSet::new();
    let mut running: Vec<Running> = (0..3)
        .map(|_| start(in_order(&database, &receiver, OnDead::Hold)))
        .collect();
    let writers = async {
        tokio::join!(
            write(&database, 0, 2, 10, 50),
            write(&database, 1, 2, 10, 50)
        );
    };
    let deaths = async {
        for _ in 0..6 {
            sleep(Duration::from_millis(400)).await;
            running.remove(0);
            running.push(start(in_order(&database, &receiver, OnDead::Hold)));
        }
    };
    tokio::join!(writers, deaths);
    judge(&database, &ledger).await;
    for relay in running {
        relays.spawn(relay.stop());
    }
    relays.join_all().await;
    let client = database.connect().await;
    eventually("the dead are reaped", Duration::from_secs(20), async || {
        // Nobody beats any more: the last word has a relay that looks around.
        let relay = start(in_order(&database, &receiver, OnDead::Hold));
        sleep(Duration::from_secs(2)).await;
        relay.stop().await;
        let left =
            "select (select count(*) from outbox.leases) + (select count(*) from outbox.relays)";
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

/// Delivers three messages of `k` and one of `other`, of which the first of `k` is refused.
async fn refuse_the_first(on_dead: OnDead) -> (Vec<(String, u64)>, Vec<(Uuid, String)>, Database) {
    let database = database().await;
    let client = database.connect().await;
    let insert = "insert into outbox.messages (topic, key, payload)
                  select 't', k, json_build_object('k', k, 'n', n)
                    from (values ('k', 1), ('k', 2), ('k', 3), ('other', 1)) v (k, n) order by n";
    client.batch_execute(insert).await.unwrap();
    let receiver = Receiver::start(|request| match read(request) {
        (key, 1) if key == "k" => Reply::status(422),
        _ => Reply::status(200),
    })
    .unwrap();
    let running = start(in_order(&database, &receiver, on_dead));
    let wanted = match on_dead {
        OnDead::Hold => 2,
        OnDead::Continue => 4,
    };
    receiver
        .wait_for(wanted, Duration::from_secs(10))
        .await
        .unwrap();
    eventually(
        "the other key is done",
        Duration::from_secs(10),
        async || {
            let left = "select from outbox.messages where key = 'other'";
            client.query(left, &[]).await.unwrap().is_empty()
        },
    )
    .await;
    running.stop().await;
    let held = client
        .query("select id, key from outbox.held_keys", &[])
        .await
        .unwrap();
    let held = held.iter().map(|row| (row.get(0), row.get(1))).collect();
    (
        receiver.requests().iter().map(read).collect(),
        held,
        database,
    )
}

#[tokio::test]
async fn a_dead_head_holds_its_key_and_no_other() {
    let (seen, held, database) = refuse_the_first(OnDead::Hold).await;
    assert_eq!(seen.iter().filter(|(key, _)| key == "k").count(), 1);
    assert_eq!(seen.iter().filter(|(key, _)| key == "other").count(), 1);
    assert_eq!((held.len(), &*held[0].1), (1, "k"));
    let client = database.connect().await;
    let waiting = "select count(*) from outbox.messages where attempts = 0 and due_at is null";
    assert_eq!(
        client
            .query_one(waiting, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        2
    );
}

#[tokio::test]
async fn after_a_dead_head_the_key_can_continue() {
    let (seen, held, _database) = refuse_the_first(OnDead::Continue).await;
    let of_key: Vec<u64> = seen
        .iter()
        .filter(|(key, _)| key == "k")
        .map(|(_, n)| *n)
        .collect();
    assert_eq!(of_key, [1, 2, 3]);
    assert!(held.is_empty());
}

/// What waits behind a dead head, or behind one in backoff, is nothing that a job could wait for.
#[tokio::test]
async fn until_empty_ends_though_rows_wait_behind_a_held_key() {
    let (_, held, database) = refuse_the_first(OnDead::Hold).await;
    assert_eq!(held.len(), 1);
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let client = database.connect().await;
    let insert = "insert into outbox.messages (topic, key, payload) values ('t', 'third', '{\"k\": \"third\", \"n\": 1}')";
    client.batch_execute(insert).await.unwrap();
    let summary = until_empty(in_order(&database, &receiver, OnDead::Hold)).await;
    assert_eq!(summary.delivered, 1);
}
