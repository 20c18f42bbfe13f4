//! A relay ends in the middle of its loop, at each place where a test can end it: another one finishes, and what was
//! committed agrees with what came.
use std::{
    collections::HashMap,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use outbox_relay::lab::receiver::{Receiver, Reply};
use rustix::process::Signal;
use tokio_postgres::Client;
use uuid::Uuid;

use super::world::POINTS;
use crate::support::{
    binary::{Directory, Process},
    database, eventually,
    rows::{SOON, all_settled, assert_nothing_left, count, one},
};

/// One test for each place.
macro_rules! places {
    ($($place:ident)*) => {
        $(#[tokio::test]
        async fn $place() {
            dies_at(stringify!($place)).await;
        })*

        #[test]
        fn each_place_has_a_test_and_is_drawn() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/relay/crash.rs");
            let source = fs::read_to_string(source).unwrap();
            let (_, places) = source.split_once("enum Point {").unwrap();
            let (places, _) = places.split_once('}').unwrap();
            let named = |line: &str| line.trim().strip_suffix(',').map(str::to_lowercase);
            let places: Vec<String> = places.lines().filter_map(named).collect();
            assert_eq!(places, [$(stringify!($place)),*]);
            assert_eq!(places, POINTS);
        }
    };
}

places! {
    registered claim claimed started sent answered settle settled expanded expired beat reaped recovered anew deregister
}

const CONFIGURATION: &str = r#"
[relay]
lease = "2s"
poll = "50ms"
grace = "2s"

[[endpoints]]
name = "shop"
url = "URLshop"
concurrency = 2
retry = { base = "20ms", cap = "200ms", max_attempts = 1000 }

[[endpoints]]
name = "mirror"
url = "URLmirror"
concurrency = 2
retry = { base = "20ms", cap = "200ms", max_attempts = 1000 }

[[endpoints]]
name = "closed"
url = "URLclosed"

[[routes]]
topic = "ordered"
to = ["shop"]
order = "key"

[[routes]]
topic = "both"
to = ["shop", "mirror"]
order = "key"

[[routes]]
topic = "late"
to = ["closed"]
"#;

/// Four under each of three keys for one endpoint, two under each for two.
async fn write(client: &Client) {
    let rows = "insert into outbox.messages (topic, key, payload)
                select t.topic, n % 3, '{}' from (values ('ordered', 12), ('both', 6)) t (topic, rows), generate_series(1, t.rows) n";
    client.batch_execute(rows).await.unwrap();
}

async fn rename(client: &Client, from: &str, to: &str) {
    let rename = format!(
        "do $$ begin execute format('alter function %s rename to {to}',
            (select oid::regprocedure from pg_proc where proname = '{from}' and pronamespace = 'outbox'::regnamespace)); end $$"
    );
    client.batch_execute(&rename).await.unwrap();
}

async fn one_is_registered(client: &Client) {
    eventually("it is registered", SOON, async || {
        count(client, "relays").await == 1
    })
    .await;
}

async fn aborted(mut relay: Process) {
    let status = relay.end(SOON).await;
    let abort = Some(Signal::ABORT.as_raw());
    assert_eq!(status.signal(), abort, "{status}: {}", relay.log());
}

async fn dies_at(place: &str) {
    let database = database().await;
    let client = database.connect().await;
    let hangs = Arc::new(AtomicBool::new(place == "sent"));
    let receiver = {
        let hangs = Arc::clone(&hangs);
        Receiver::start(move |_| match hangs.load(Ordering::SeqCst) {
            true => Reply::never(),
            false => Reply::status(200),
        })
        .unwrap()
    };
    let directory = Directory::new();
    let text = CONFIGURATION.replace("URL", &receiver.url("/"));
    let config = directory.write("relay.toml", &text);
    let start = |name: &str, crash: Option<&str>| {
        directory.run_until_crash(&config, &database.url, name, crash)
    };
    let first = |times: u32| start("first", Some(&format!("{place}:{times}")));

    // Their ids and seqs, before they leave the table.
    let ledger = "create schema shop; create table shop.ledger (id uuid, topic text, key text, seq bigint);
                  create function shop.enter() returns trigger language plpgsql as $$ begin
                      insert into shop.ledger values (new.id, new.topic, new.key, new.seq); return null; end $$;
                  create trigger enter after insert on outbox.messages for each row when (new.endpoint = '')
                      execute function shop.enter()";
    client.batch_execute(ledger).await.unwrap();
    match place {
        "reaped" => {
            write(&client).await;
            aborted(start("dead", Some("claimed:1"))).await;
            aborted(first(1)).await;
        }
        "recovered" => {
            let relay = first(1);
            one_is_registered(&client).await;
            rename(&client, "claim", "gone").await;
            write(&client).await;
            aborted(relay).await;
            rename(&client, "gone", "claim").await;
        }
        "anew" => {
            let relay = first(1);
            one_is_registered(&client).await;
            write(&client).await;
            client
                .batch_execute("delete from outbox.relays")
                .await
                .unwrap();
            aborted(relay).await;
        }
        "expired" => {
            write(&client).await;
            let late = "insert into outbox.endpoints (endpoint) values ('closed');
                        select outbox.pause('closed', 'it expires there', 'the test');
                        insert into outbox.messages (topic, payload, expires_at) values ('late', '{}', now() + interval '10 ms')";
            client.batch_execute(late).await.unwrap();
            aborted(first(1)).await;
        }
        "deregister" => {
            write(&client).await;
            let relay = first(1);
            receiver.wait_for(1, SOON).await.unwrap();
            relay.signal(Signal::TERM);
            aborted(relay).await;
        }
        "beat" => {
            write(&client).await;
            aborted(first(2)).await;
        }
        _ => {
            write(&client).await;
            aborted(first(1)).await;
        }
    }
    if place == "sent" {
        eventually("its requests were written", SOON, async || {
            receiver.count() > 0
        })
        .await;
    }
    let unanswered = usize::try_from(receiver.count()).unwrap() * usize::from(place == "sent");
    hangs.store(false, Ordering::SeqCst);

    let mut second = start("second", None);
    all_settled(&client, SOON).await;
    eventually("nobody else is registered", SOON, async || {
        let names = "select coalesce(string_agg(name, ' '), '') from outbox.relays";
        one::<String>(&client, names).await == "second"
    })
    .await;
    second.signal(Signal::TERM);
    assert_eq!(second.end(SOON).await.code(), Some(0), "{}", second.log());
    assert_nothing_left(&client).await;
    let dead = i64::from(place == "expired");
    assert_eq!(count(&client, "dead_letters").await, dead, "dead letters");
    agree(&client, &receiver, unanswered).await;
}

/// Each message came to each of its endpoints, twice at most, and under its key first after the one before it.
async fn agree(client: &Client, receiver: &Receiver, unanswered: usize) {
    let mut came: HashMap<(String, Uuid), Vec<usize>> = HashMap::new();
    for (n, request) in receiver.requests().iter().enumerate().skip(unanswered) {
        let id = request
            .header("outbox-message-id")
            .unwrap()
            .parse()
            .unwrap();
        came.entry((request.path.clone(), id)).or_default().push(n);
    }
    let query =
        "select id, topic, key from shop.ledger where topic <> 'late' order by topic, key, seq";
    let mut last: Option<(String, String, Uuid)> = None;
    for row in client.query(query, &[]).await.unwrap() {
        let (id, topic, key): (Uuid, String, String) = (row.get(0), row.get(1), row.get(2));
        let to: &[&str] = match topic.as_str() {
            "both" => &["/shop", "/mirror"],
            _ => &["/shop"],
        };
        for to in to {
            let at = |id: Uuid| came.get(&((*to).to_owned(), id));
            let times = at(id).map_or(0, Vec::len);
            assert!((1..=2).contains(&times), "{id} came to {to} {times} times");
            if let Some((topic_before, key_before, before)) = &last
                && (topic_before, key_before) == (&topic, &key)
            {
                let (before, after) = (at(*before).unwrap(), at(id).unwrap());
                assert!(before[0] < after[0], "{id} came to {to} too early");
            }
        }
        last = Some((topic, key, id));
    }
    let expected = 12 + 2 * 6;
    assert_eq!(came.len(), expected, "deliveries");
}
