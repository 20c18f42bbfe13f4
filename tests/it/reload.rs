//! A configuration that changes while the relay runs: applied whole or not at all, and no message suffers from it.
use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::lab::receiver::{Options, Receiver, Reply, Request};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::support::{
    Database,
    binary::{Directory, Process, outbox_relay},
    database, eventually,
    rows::{SOON, all_settled, assert_nothing_left, count, insert, insert_one, one, outcomes},
};

/// A configuration with these endpoints (name, URL) and routes (topic, endpoint); `more` is for every endpoint.
fn text(endpoints: &[(&str, &str)], routes: &[(&str, &str)], more: &str) -> String {
    let mut text = String::from("[relay]\nlease = \"2s\"\npoll = \"20ms\"\n");
    for (name, url) in endpoints {
        write!(
            text,
            "[[endpoints]]\nname = \"{name}\"\nurl = \"{url}\"\nbreaker = {{ enabled = false }}\n\
             retry = {{ base = \"50ms\", cap = \"200ms\", max_attempts = 100 }}\n{more}\n"
        )
        .unwrap();
    }
    for (topic, to) in routes {
        write!(
            text,
            "[[routes]]\ntopic = \"{topic}\"\nto = [\"{to}\"]\norder = \"key\"\n"
        )
        .unwrap();
    }
    text
}

/// Whole, under another name, then renamed: as those do that replace a file.
fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, path).unwrap();
}

async fn says(relay: &Process, what: &str, times: usize) {
    let matches = || relay.log().matches(what).count();
    eventually(what, SOON, async || matches() == times).await;
}

const RELOADED: &str = "\"configuration reloaded\"";
const REFUSED: &str = "can't be applied: the one before stays in use";

async fn stop(mut relay: Process) -> String {
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    relay.log()
}

/// A database, a receiver that accepts all, and the file of a relay.
struct Stage {
    database: Database,
    client: tokio_postgres::Client,
    directory: Directory,
    receiver: Receiver,
}

impl Stage {
    async fn new() -> Stage {
        let database = database().await;
        Stage {
            client: database.connect().await,
            database,
            directory: Directory::new(),
            receiver: Receiver::start(|_| Reply::status(200)).unwrap(),
        }
    }

    fn url(&self, path: &str) -> String {
        self.receiver.url(path)
    }

    fn run(&self, config: &Path) -> Process {
        self.directory.run(config, &self.database.url, "relay")
    }

    async fn registered(&self, relays: i64) {
        eventually("it is registered", SOON, async || {
            count(&self.client, "relays").await == relays
        })
        .await;
    }

    async fn digest(&self) -> String {
        one(&self.client, "select config_digest from outbox.relays").await
    }
}

#[tokio::test]
async fn sighup_adds_a_route_and_its_pending_rows_are_delivered() {
    let stage = Stage::new().await;
    let shop = stage.url("/shop");
    let before = text(&[("shop", &shop)], &[("order.*", "shop")], "");
    let config = stage.directory.write("relay.toml", &before);
    insert(&stage.client, "user.created", 30).await;
    let relay = stage.run(&config);
    says(&relay, "no route for this topic", 1).await;
    eventually("status shows it", SOON, async || {
        let output = outbox_relay(&stage.database.url, &["status", "--json"]).await;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["lanes"][0]["unrouted"] == true && status["lanes"][0]["pending"] == 30
    })
    .await;
    let digest = stage.digest().await;
    let identity: uuid::Uuid = one(&stage.client, "select relay from outbox.relays").await;

    let mail = stage.url("/mail");
    let routes = [("order.*", "shop"), ("user.*", "mail")];
    replace(
        &config,
        &text(&[("shop", &shop), ("mail", &mail)], &routes, ""),
    );
    relay.signal(Signal::HUP);
    all_settled(&stage.client, SOON).await;
    let requests = stage.receiver.requests();
    assert_eq!(requests.len(), 30);
    assert!(requests.iter().all(|request| request.path == "/mail"));
    eventually("the digest is another one", SOON, async || {
        stage.digest().await != digest
    })
    .await;
    let same: uuid::Uuid = one(&stage.client, "select relay from outbox.relays").await;
    assert_eq!(same, identity, "the registration stays");
    says(&relay, RELOADED, 1).await;
    relay.signal(Signal::HUP);
    says(&relay, "SIGHUP: the configuration is the one in use", 1).await;
    let log = stop(relay).await;
    assert!(log.contains("\"endpoints.added\":\"mail\""), "{log}");
    assert!(log.contains("\"routes\":2"), "{log}");
}

#[tokio::test]
async fn a_symbolic_link_that_is_swapped_is_seen_without_a_signal() {
    let stage = Stage::new().await;
    let (old, new) = (stage.url("/old"), stage.url("/new"));
    let routes = [("**", "shop")];
    let path = stage
        .directory
        .write("v1", &text(&[("shop", &old)], &routes, ""));
    let home = path.parent().unwrap();
    stage
        .directory
        .write("v2", &text(&[("shop", &new)], &routes, ""));
    let swap = |to: &str| {
        symlink(to, home.join("..new")).unwrap();
        fs::rename(home.join("..new"), home.join("..data")).unwrap();
    };
    swap("v1");
    let config: PathBuf = home.join("relay.toml");
    symlink("..data", &config).unwrap();
    let relay = stage.run(&config);
    insert(&stage.client, "t", 5).await;
    all_settled(&stage.client, SOON).await;
    swap("v2");
    says(&relay, RELOADED, 1).await;
    insert(&stage.client, "t", 5).await;
    all_settled(&stage.client, SOON).await;
    let requests = stage.receiver.requests();
    let paths: Vec<&str> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(paths, [["/old"; 5], ["/new"; 5]].concat());
    let log = stop(relay).await;
    assert!(log.contains("\"endpoints.changed\":\"shop\""), "{log}");
}

#[tokio::test]
async fn what_is_invalid_or_needs_a_restart_changes_nothing_and_is_said_once() {
    let stage = Stage::new().await;
    let shop = stage.url("/old");
    let routes = [("**", "shop")];
    let good = text(&[("shop", &shop)], &routes, "");
    let config = stage.directory.write("relay.toml", &good);
    let relay = stage.run(&config);
    stage.registered(1).await;
    let digest = stage.digest().await;

    let moved = text(&[("shop", &stage.url("/new?token=hunter2"))], &routes, "");
    replace(&config, &format!("{moved}nonsense = 1\nother = 2\n"));
    says(&relay, REFUSED, 1).await;
    relay.signal(Signal::HUP);
    says(
        &relay,
        "SIGHUP: the configuration still can't be applied",
        1,
    )
    .await;
    sleep(Duration::from_millis(1500)).await;
    says(&relay, REFUSED, 1).await;
    let log = relay.log();
    assert!(
        log.contains("nonsense: unknown key") && log.contains("other: unknown key"),
        "{log}"
    );

    replace(&config, &moved.replace("lease = \"2s\"", "lease = \"3s\""));
    says(&relay, REFUSED, 2).await;
    assert!(
        relay
            .log()
            .contains("a change of relay.lease needs a restart")
    );
    fs::remove_file(&config).unwrap();
    says(&relay, REFUSED, 3).await;
    insert(&stage.client, "t", 5).await;
    all_settled(&stage.client, SOON).await;
    assert!(
        stage
            .receiver
            .requests()
            .iter()
            .all(|request| request.path == "/old")
    );
    assert_eq!(stage.digest().await, digest);

    // And what is right again is taken.
    replace(&config, &moved);
    says(&relay, RELOADED, 1).await;
    insert(&stage.client, "t", 5).await;
    all_settled(&stage.client, SOON).await;
    assert!(
        stage.receiver.requests()[5..]
            .iter()
            .all(|request| request.path.starts_with("/new"))
    );
    let log = stop(relay).await;
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn the_retry_of_a_route_holds_for_what_is_claimed_after_the_reload() {
    let stage = Stage::new().await;
    let slow = Receiver::start(|_| Reply::status(503).after(Duration::from_secs(2))).unwrap();
    let before = text(&[("shop", &slow.url("/"))], &[("**", "shop")], "");
    let config = stage.directory.write("relay.toml", &before);
    let relay = stage.run(&config);
    let id = insert_one(&stage.client, "payload", "'1'").await;
    slow.wait_for(1, SOON).await.unwrap();
    // The attempt on its way is not its last, though it would be by the new policy.
    replace(
        &config,
        &format!("{before}retry = {{ max_attempts = 1 }}\n"),
    );
    says(&relay, RELOADED, 1).await;
    all_settled(&stage.client, SOON).await;
    assert_eq!(outcomes(&stage.client, id).await, ["unavailable"; 2]);
    let reason: String = one(&stage.client, "select reason from outbox.dead_letters").await;
    assert_eq!(reason, "attempts");
    let log = stop(relay).await;
    assert!(log.contains("\"tables\":\"routes\""), "{log}");
}

#[tokio::test]
async fn an_endpoint_that_is_removed_finishes_what_is_in_flight_and_gets_nothing_new() {
    let stage = Stage::new().await;
    let slow = Receiver::start(|_| Reply::status(200).after(Duration::from_secs(2))).unwrap();
    let (shop, gone) = (stage.url("/"), slow.url("/"));
    let both = [("shop", &*shop), ("gone", &*gone)];
    let routes = [("a", "shop"), ("b", "gone")];
    let config = stage
        .directory
        .write("relay.toml", &text(&both, &routes, "concurrency = 2"));
    let relay = stage.run(&config);
    insert(&stage.client, "b", 10).await;
    slow.wait_for(2, SOON).await.unwrap();
    replace(&config, &text(&both[..1], &routes[..1], "concurrency = 2"));
    relay.signal(Signal::HUP);
    eventually(
        "two are settled, the rest is pending and free",
        SOON,
        async || {
            count(&stage.client, "messages").await == 8 && count(&stage.client, "leases").await == 0
        },
    )
    .await;
    says(&relay, "no route for this topic", 1).await;
    insert(&stage.client, "a", 5).await;
    eventually("the other endpoint goes on", SOON, async || {
        count(&stage.client, "messages").await == 8
    })
    .await;
    assert_eq!(slow.count(), 2);
    assert_eq!(count(&stage.client, "messages where attempts > 0").await, 0);
    let log = stop(relay).await;
    assert!(log.contains("\"endpoints.removed\":\"gone\""), "{log}");
}

#[tokio::test]
async fn a_row_that_was_tried_keeps_its_key_when_its_endpoint_changes() {
    let stage = Stage::new().await;
    let bad = Receiver::start(|_| Reply::status(503)).unwrap();
    let routes = [("**", "shop")];
    let config = stage
        .directory
        .write("relay.toml", &text(&[("shop", &bad.url("/"))], &routes, ""));
    let relay = stage.run(&config);
    let id = insert_one(&stage.client, "payload, key", "'1', 'k'").await;
    bad.wait_for(1, SOON).await.unwrap();
    replace(&config, &text(&[("shop", &stage.url("/"))], &routes, ""));
    relay.signal(Signal::HUP);
    all_settled(&stage.client, SOON).await;
    let key = format!("\"{id}\"");
    for request in bad.requests().iter().chain(&stage.receiver.requests()) {
        assert_eq!(request.header("idempotency-key"), Some(&*key));
    }
    let tries = bad.count() + stage.receiver.count();
    assert_eq!(outcomes(&stage.client, id).await.len() as u64, tries);
    stop(relay).await;
}

#[tokio::test]
async fn status_says_that_relays_run_different_configurations_until_all_are_reloaded() {
    let stage = Stage::new().await;
    let routes = [("**", "shop")];
    let [old, new] = ["/old", "/new"].map(|path| text(&[("shop", &stage.url(path))], &routes, ""));
    let relays = ["one", "two", "three"].map(|name| {
        let config = stage.directory.write(&format!("{name}.toml"), &old);
        let relay = stage.directory.run(&config, &stage.database.url, name);
        (config, relay)
    });
    stage.registered(3).await;
    // The names of those that are marked, whether it is said that there are any, and the same in the text for people.
    let status = async || {
        let output = outbox_relay(&stage.database.url, &["status", "--json"]).await;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let relays = status["relays"].as_array().unwrap();
        let marked = relays
            .iter()
            .filter(|relay| relay["config_differs"] == true);
        let names: Vec<String> = marked.map(|relay| relay["name"].to_string()).collect();
        let output = outbox_relay(&stage.database.url, &["status"]).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let said = text.contains("relays run different configurations");
        let marks = text.matches(" other configuration").count();
        (names, status["configs_differ"] == true, marks, said)
    };
    let same = (vec![], false, 0, false);
    assert_eq!(status().await, same);
    replace(&relays[1].0, &new);
    let two = (vec!["\"two\"".to_owned()], true, 1, true);
    eventually("one is marked", SOON, async || status().await == two).await;
    replace(&relays[0].0, &new);
    replace(&relays[2].0, &new);
    eventually("all are the same", SOON, async || status().await == same).await;
    for (_, relay) in relays {
        stop(relay).await;
    }
}

#[tokio::test]
async fn the_last_word_of_an_old_url_does_not_pause_the_new_one() {
    let stage = Stage::new().await;
    let old = Receiver::start(|_| Reply::status(410).after(Duration::from_secs(1))).unwrap();
    let routes = [("**", "shop")];
    let first = text(&[("shop", &old.url("/"))], &routes, "");
    let config = stage.directory.write("relay.toml", &first);
    let relay = stage.run(&config);
    insert(&stage.client, "t", 1).await;
    old.wait_for(1, SOON).await.unwrap();
    replace(&config, &text(&[("shop", &stage.url("/"))], &routes, ""));
    relay.signal(Signal::HUP);
    all_settled(&stage.client, SOON).await;
    assert_eq!((old.count(), stage.receiver.count()), (1, 1));
    let paused = count(&stage.client, "endpoints where paused_at is not null").await;
    assert_eq!(paused, 0);
    stop(relay).await;
}

/// Two relays, 2,000 rows of 40 keys, and a URL that changes again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_nothing_is_lost_or_sent_twice_and_keys_keep_their_order() {
    let stage = Stage::new().await;
    let seen: Arc<Mutex<HashMap<String, Vec<u64>>>> = Arc::default();
    let written = seen.clone();
    let script = move |request: &Request| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let key = body["k"].to_string();
        let number = body["n"].as_u64().unwrap();
        written.lock().unwrap().entry(key).or_default().push(number);
        Reply::status(200).after(Duration::from_millis(5))
    };
    let options = Options {
        keep: 0,
        keep_bodies: false,
    };
    let receivers: Vec<Receiver> = (0..2)
        .map(|_| Receiver::start_with(options, script.clone()).unwrap())
        .collect();
    let urls: Vec<String> = receivers.iter().map(|receiver| receiver.url("/")).collect();
    let version = |turn: usize| {
        let more = ["concurrency = 8", "concurrency = 3"][turn % 2];
        text(&[("shop", &urls[turn % 2])], &[("**", "shop")], more)
    };
    let config = stage.directory.write("relay.toml", &version(0));
    let relays = ["one", "two"].map(|name| stage.directory.run(&config, &stage.database.url, name));
    stage.registered(2).await;
    let rows = "insert into outbox.messages (topic, key, payload)
                select 't', 'k' || n % 40, json_build_object('k', n % 40, 'n', n) from generate_series(1, 2000) n";
    stage.client.batch_execute(rows).await.unwrap();
    for turn in 1.. {
        sleep(Duration::from_millis(150)).await;
        if count(&stage.client, "messages").await == 0 {
            assert!(turn > 3, "it was over before anything changed");
            break;
        }
        assert!(turn < 400, "it does not end");
        replace(&config, &version(turn));
        for relay in &relays {
            relay.signal(Signal::HUP);
        }
    }
    let delivered = count(&stage.client, "attempts where outcome = 'success'").await;
    let attempts = count(&stage.client, "attempts").await;
    for relay in relays {
        let log = stop(relay).await;
        assert!(log.contains(RELOADED), "{log}");
    }
    assert_eq!((delivered, attempts), (2000, 2000));
    assert!(receivers.iter().all(|receiver| receiver.count() > 0));
    assert_nothing_left(&stage.client).await;
    let seen = seen.lock().unwrap();
    let all: HashSet<u64> = seen.values().flatten().copied().collect();
    let requests: usize = seen.values().map(Vec::len).sum();
    assert_eq!((all.len(), requests), (2000, 2000), "each row once");
    for (key, numbers) in seen.iter() {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

#[tokio::test]
async fn what_dies_after_its_route_is_gone_holds_its_key_as_the_route_said() {
    let stage = Stage::new().await;
    let refusing = Receiver::start(|_| Reply::status(422).after(Duration::from_secs(1))).unwrap();
    let url = refusing.url("/");
    let config = |topic| text(&[("shop", &url)], &[(topic, "shop")], "");
    let path = stage.directory.write("relay.toml", &config("t"));
    insert_one(&stage.client, "key", "'k'").await;
    let relay = stage.run(&path);
    eventually("it is on its way", SOON, async || refusing.count() == 1).await;
    replace(&path, &config("other"));
    relay.signal(Signal::HUP);
    says(&relay, RELOADED, 1).await;
    eventually("it is dead", SOON, async || {
        count(&stage.client, "dead_letters").await == 1
    })
    .await;
    assert_eq!(count(&stage.client, "held_keys where key = 'k'").await, 1);
    stop(relay).await;
}
