//! A relay with nothing to do hardly asks; and who does without the bell polls.
use std::time::Duration;

use outbox_relay::{lab::receiver::Reply, relay::Relay};

use super::{arrives, asleep, keeper, sleeper, sleeping};
use crate::support::{
    binary::{Directory, outbox_relay},
    eventually,
    relay::{Running, start},
    rows::{SOON, count, insert, one, transactions},
    scene::Scene,
};

/// As a configuration is by default.
fn default(scene: &Scene, name: &str) -> Relay {
    let mut relay = scene.relay();
    relay.config.name = name.into();
    relay.config.lease = Duration::from_secs(15);
    relay.config.poll = Duration::from_millis(200);
    relay.config.idle = Duration::from_secs(5);
    relay
}

async fn registered(scene: &Scene, relays: i64) {
    eventually("all are registered", SOON, async || {
        count(&scene.client, "relays").await == relays
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_woken_hardly_asks() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let relay = start(default(&scene, "one"));
    asleep(&scene.client).await;
    let made = transactions(&scene.client).await;
    assert!(made <= 2.0, "{made} in a second");
    arrives(&scene, &scene.client).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_relays_hardly_ask_and_one_of_them_is_woken() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let relays: Vec<Running> = (0..20)
        .map(|n| start(default(&scene, &format!("relay {n}"))))
        .collect();
    registered(&scene, 20).await;
    asleep(&scene.client).await;
    let made = transactions(&scene.client).await;
    assert!(made <= 40.0, "{made} in a second");
    let doorbells = "select count(*) from pg_stat_activity \
                     where datname = current_database() and application_name = 'outbox-relay doorbell'";
    assert_eq!(one::<i64>(&scene.client, doorbells).await, 2);
    arrives(&scene, &scene.client).await;
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_bell_a_relay_asks_a_few_times_a_second() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    scene.database.store().set_doorbell(false).await.unwrap();
    let relay = start(default(&scene, "one"));
    registered(&scene, 1).await;
    let made = transactions(&scene.client).await;
    assert!(made <= 8.0, "{made} in a second");
    arrives(&scene, &scene.client).await;
    assert_eq!(keeper(&scene.client).await, None);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_told_not_to_keep_it_polls() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let mut without = sleeper(&scene, "without");
    without.config.doorbell = false;
    let without = start(without);
    registered(&scene, 1).await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    assert_eq!(keeper(&scene.client).await, None);
    without.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_ring_is_found_at_the_next_look() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let mut relay = sleeper(&scene, "sleeper");
    relay.config.idle = Duration::from_secs(1);
    let relay = start(relay);
    asleep(&scene.client).await;
    let silent = scene.database.connect().await;
    silent
        .batch_execute("set outbox.doorbell = off")
        .await
        .unwrap();
    for _ in 0..3 {
        arrives(&scene, &silent).await;
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_is_removed_or_made_is_noticed() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let mut relay = sleeper(&scene, "sleeper");
    relay.config.idle = Duration::from_secs(1);
    let relay = start(relay);
    let store = scene.database.store();
    for _ in 0..2 {
        asleep(&scene.client).await;
        store.set_doorbell(false).await.unwrap();
        eventually("nobody keeps it", SOON, async || {
            keeper(&scene.client).await.is_none()
        })
        .await;
        arrives(&scene, &scene.client).await;
        store.set_doorbell(true).await.unwrap();
    }
    asleep(&scene.client).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_keeper_takes_is_shared() {
    let scene = Scene::new(|_| Reply::status(200).after(Duration::from_millis(100))).await;
    let one = start(sleeper(&scene, "one"));
    asleep(&scene.client).await;
    let other = start(sleeper(&scene, "other"));
    registered(&scene, 2).await;
    insert(&scene.client, "t", 600).await;
    scene.receiver.wait_for(600, SOON).await.unwrap();
    let (one, other) = (one.stop().await.delivered, other.stop().await.delivered);
    assert!(one > 0 && other > 0, "{one} {other}");
    assert_eq!(one + other, 600);
}

#[tokio::test]
async fn status_and_check_say_how_it_stands() {
    let (scene, relay) = sleeping().await;
    let said = outbox_relay(&scene.database.url, &["status"]).await;
    let said = String::from_utf8(said.stdout).unwrap();
    let line = said.lines().find(|line| line.starts_with("sleeper"));
    assert!(
        line.is_some_and(|line| line.ends_with(" doorbell")),
        "{said}"
    );
    let directory = Directory::new();
    let check = async |more: &str| {
        let path = directory.config(&scene.receiver.url("/"), more);
        let arguments = ["check", "--config", path.to_str().unwrap()];
        let checked = outbox_relay(&scene.database.url, &arguments).await;
        String::from_utf8(checked.stdout).unwrap()
    };
    let said = check("").await;
    assert!(said.ends_with("doorbell: inserts wake a relay\n"), "{said}");
    let said = check("doorbell = false").await;
    assert!(
        said.contains("(relay.doorbell = false), and polls every 20ms"),
        "{said}"
    );
    let migrate = async |option: &str| {
        let migrated = outbox_relay(&scene.database.url, &["migrate", option]).await;
        String::from_utf8(migrated.stdout).unwrap()
    };
    assert!(
        migrate("--no-doorbell")
            .await
            .contains("doorbell: there is none")
    );
    let said = check("").await;
    assert!(said.contains("doorbell: there is none"), "{said}");
    assert!(
        migrate("--doorbell")
            .await
            .contains("doorbell: inserts wake a relay")
    );
    relay.stop().await;
}
