//! A topic gets one endpoint more, or less, while its messages are under way.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::lab::receiver::{Options, Receiver, Reply, Request};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::process::Signal;
use tokio::time::sleep;
use uuid::Uuid;

use crate::support::{
    binary::{Directory, Process, outbox_relay},
    database, eventually,
    rows::{SOON, all_settled, assert_nothing_left, count, insert_one},
};

/// A configuration with these endpoints, where all topics go to those in `to`, in the order of keys.
fn text(endpoints: &[(&str, &str)], to: &[&str]) -> String {
    let mut text = String::from("[relay]\nlease = \"2s\"\npoll = \"20ms\"\n");
    for (name, url) in endpoints {
        write!(
            text,
            "[[endpoints]]\nname = \"{name}\"\nurl = \"{url}\"\nconcurrency = 8\nbreaker = {{ enabled = false }}\n\
             retry = {{ base = \"20ms\", cap = \"100ms\", max_attempts = 1000 }}\n"
        )
        .unwrap();
    }
    write!(
        text,
        "[[routes]]\ntopic = \"**\"\nto = {to:?}\norder = \"key\"\n"
    )
    .unwrap();
    text
}

fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, path).unwrap();
}

async fn stop(mut relay: Process) {
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
}

fn key(request: &Request) -> Uuid {
    let key = request.header("idempotency-key").unwrap();
    key.trim_matches('"').parse().unwrap()
}

#[tokio::test]
async fn a_row_that_was_tried_keeps_its_key_when_its_topic_gets_a_second_endpoint() {
    let database = database().await;
    let client = database.connect().await;
    let [a, b] = [503, 200].map(|status| Receiver::start(move |_| Reply::status(status)).unwrap());
    let well = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.write("relay.toml", &text(&[("a", &a.url("/"))], &["a"]));
    let relay = directory.run(&config, &database.url, "relay");
    let tried = insert_one(&client, "key", "'k'").await;
    let behind = insert_one(&client, "key", "'k'").await;
    let other = insert_one(&client, "key", "'other'").await;
    a.wait_for(4, SOON).await.unwrap();
    let both = |url: &str| text(&[("a", url), ("b", &b.url("/"))], &["a", "b"]);
    replace(&config, &both(&a.url("/")));
    // The row behind the one that fails was never sent: it goes to both, and waits at the first only.
    let got = |receiver: &Receiver, key: Uuid| {
        receiver
            .requests()
            .iter()
            .any(|request| self::key(request) == key)
    };
    let of_b = Uuid::new_v5(&behind, b"b");
    eventually("the second gets what is behind", SOON, async || {
        got(&b, of_b)
    })
    .await;
    replace(&config, &both(&well.url("/")));
    all_settled(&client, SOON).await;
    stop(relay).await;
    assert_nothing_left(&client).await;
    let keys: Vec<Uuid> = well.requests().iter().map(key).collect();
    assert!(
        keys.contains(&tried) && keys.contains(&Uuid::new_v5(&behind, b"a")),
        "{keys:?}"
    );
    let at = |id: Uuid| keys.iter().position(|key| *key == id).unwrap();
    assert!(at(tried) < at(Uuid::new_v5(&behind, b"a")));
    assert!(
        a.requests()
            .iter()
            .all(|request| [tried, other].contains(&key(request)))
    );
    assert!(
        !got(&b, Uuid::new_v5(&tried, b"b")),
        "it was on its way to one endpoint, and is finished there"
    );
}

#[tokio::test]
async fn what_was_made_for_an_endpoint_is_delivered_there_after_the_route_lost_it() {
    let database = database().await;
    let client = database.connect().await;
    let [a, b] = [(); 2].map(|()| Receiver::start(|_| Reply::status(200)).unwrap());
    let down = Receiver::start(|_| Reply::status(503)).unwrap();
    let directory = Directory::new();
    let (url_a, url_b, url_down) = (a.url("/"), b.url("/"), down.url("/"));
    let config = directory.write(
        "relay.toml",
        &text(&[("a", &url_a), ("b", &url_down)], &["a", "b"]),
    );
    let relay = directory.run(&config, &database.url, "relay");
    let id = insert_one(&client, "key", "'k'").await;
    down.wait_for(2, SOON).await.unwrap();
    // Nobody knows the endpoint: kept, and said.
    replace(&config, &text(&[("a", &url_a)], &["a"]));
    let said = "there is no such endpoint any more";
    eventually(said, SOON, async || relay.log().contains(said)).await;
    let output = outbox_relay(&database.url, &["status"]).await;
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("no such endpoint, or no route"), "{shown}");
    let second = insert_one(&client, "key", "'k'").await;
    a.wait_for(2, SOON).await.unwrap();
    assert_eq!(count(&client, "messages where endpoint = 'b'").await, 1);
    // It is known again, though the route does not lead there.
    replace(&config, &text(&[("a", &url_a), ("b", &url_b)], &["a"]));
    all_settled(&client, SOON).await;
    stop(relay).await;
    let keys = |receiver: &Receiver| -> Vec<Uuid> { receiver.requests().iter().map(key).collect() };
    assert_eq!(keys(&a), [Uuid::new_v5(&id, b"a"), second]);
    assert_eq!(keys(&b), [Uuid::new_v5(&id, b"b")]);
}

/// What a receiver saw: the numbers that it accepted, by key, and under which idempotency key each message came.
#[derive(Default)]
struct Ledger {
    accepted: BTreeMap<String, Vec<u64>>,
    keys: HashMap<u64, HashSet<String>>,
}

/// Two relays, 3,000 rows of 40 keys, one topic that gets a second endpoint and loses it again and again, at different
/// moments for the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_that_change_again_and_again_lose_nothing_and_keep_keys_and_order() {
    let database = database().await;
    let client = database.connect().await;
    let ledgers: [Arc<Mutex<Ledger>>; 2] = Default::default();
    let receivers = ledgers.clone().map(|ledger| {
        let dice = Mutex::new(StdRng::seed_from_u64(7));
        let script = move |request: &Request| {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            let number = body["n"].as_u64().unwrap();
            let fails = dice.lock().unwrap().random_range(0..10) == 0;
            let mut ledger = ledger.lock().unwrap();
            ledger
                .keys
                .entry(number)
                .or_default()
                .insert(key(request).to_string());
            if fails {
                return Reply::status(503);
            }
            let numbers = ledger.accepted.entry(body["k"].to_string()).or_default();
            numbers.push(number);
            Reply::status(200).after(Duration::from_millis(3))
        };
        let options = Options {
            keep: 0,
            keep_bodies: false,
        };
        Receiver::start_with(options, script).unwrap()
    });
    let urls: Vec<String> = receivers.iter().map(|receiver| receiver.url("/")).collect();
    let version = |several: bool| {
        let to: &[&str] = if several { &["a", "b"] } else { &["a"] };
        text(&[("a", &urls[0]), ("b", &urls[1])], to)
    };
    let directory = Directory::new();
    let relays = ["one", "two"].map(|name| {
        let config = directory.write(&format!("{name}.toml"), &version(false));
        let relay = directory.run(&config, &database.url, name);
        (config, relay)
    });
    let rows = "insert into outbox.messages (topic, key, payload)
                select 't', 'k' || n % 40, json_build_object('k', n % 40, 'n', n) from generate_series(1, 3000) n";
    client.batch_execute(rows).await.unwrap();
    let mut dice = StdRng::seed_from_u64(11);
    let mut turns = 0;
    while count(&client, "messages").await > 0 {
        turns += 1;
        assert!(turns < 600, "it does not end");
        let (config, relay) = &relays[dice.random_range(0..2_usize)];
        replace(config, &version(dice.random_range(0..2) == 0));
        relay.signal(Signal::HUP);
        sleep(Duration::from_millis(60)).await;
    }
    assert!(turns > 5, "it was over before anything changed: {turns}");
    let failed = count(&client, "attempts where outcome <> 'success'").await;
    let attempts = count(&client, "attempts").await;
    for (_, relay) in relays {
        stop(relay).await;
    }
    assert_nothing_left(&client).await;
    let mut accepted = 0;
    for (ledger, endpoint) in ledgers.iter().zip(["a", "b"]) {
        let ledger = ledger.lock().unwrap();
        for (key, numbers) in &ledger.accepted {
            accepted += numbers.len();
            assert!(
                numbers.is_sorted_by(|a, b| a < b),
                "{endpoint} {key}: {numbers:?}"
            );
        }
        for (number, keys) in &ledger.keys {
            assert_eq!(keys.len(), 1, "{endpoint} saw {number} under {keys:?}");
        }
    }
    let seen = |n: usize| {
        ledgers[n]
            .lock()
            .unwrap()
            .accepted
            .values()
            .map(Vec::len)
            .sum::<usize>()
    };
    assert_eq!(seen(0), 3000, "every row came to the first, once");
    assert!(seen(1) > 100, "the second got {}", seen(1));
    assert_eq!(i64::try_from(accepted).unwrap(), attempts - failed);
}
