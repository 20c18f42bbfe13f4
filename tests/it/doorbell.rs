//! A relay that sleeps is woken by an INSERT, whoever inserts, however long the transaction stays open; and where that can't be, it
//! polls.
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    relay::Relay,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::Client;

use crate::support::{
    eventually,
    relay::{Running, endpoint, start},
    rows::{SOON, all_settled, insert, one},
    scene::Scene,
};

mod failures;
mod pooler;
mod quiet;
mod trigger;

/// Far longer than anything here takes: who is not woken is late.
const NEVER: Duration = Duration::from_secs(300);

/// For one message to arrive, on a machine that is busy with other tests.
const PROMPT: Duration = Duration::from_secs(10);

/// Sessions that hold or await a lock of the doorbell's, in this database.
fn locks(number: i32, granted: bool) -> String {
    format!(
        "pg_locks l where locktype = 'advisory' and classid = 1870034018 and objid = {number} and objsubid = 2 and granted = {granted}
            and mode = 'ExclusiveLock' and database = (select oid from pg_database where datname = current_database())"
    )
}

/// The process that keeps the bell, if there is one.
async fn keeper(client: &Client) -> Option<i32> {
    let query = format!("select pid from {}", locks(2, true));
    let row = client.query_opt(&query, &[]).await.unwrap();
    row.map(|row| row.get(0))
}

/// Waits until a relay sleeps and everybody who inserts rings.
async fn asleep(client: &Client) {
    let query = format!("select exists (select from {})", locks(1, true));
    eventually("a relay sleeps", SOON, async || one(client, &query).await).await;
}

/// One that is woken, or never comes.
fn sleeper(scene: &Scene, name: &str) -> Relay {
    let mut relay = scene.relay();
    relay.config.name = name.into();
    relay.config.poll = Duration::from_millis(200);
    relay.config.idle = NEVER;
    relay
}

/// A scene with a relay that sleeps.
async fn sleeping() -> (Scene, Running) {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let relay = start(sleeper(&scene, "sleeper"));
    asleep(&scene.client).await;
    (scene, relay)
}

/// Commits one message and waits until it is there.
async fn arrives(scene: &Scene, client: &Client) {
    let before = scene.receiver.count();
    insert(client, "t", 1).await;
    scene.receiver.wait_for(before + 1, PROMPT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_is_missed_whenever_it_comes() {
    let (scene, relay) = sleeping().await;
    // Pauses of all lengths, so that it falls asleep, sleeps, or is just waking.
    for pause in (0..300).map(|n| n * 37 % 150) {
        arrives(&scene, &scene.client).await;
        sleep(Duration::from_millis(pause)).await;
    }
    all_settled(&scene.client, PROMPT).await;
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_is_missed_however_long_its_transaction_stays_open() {
    let (scene, relay) = sleeping().await;
    let mut writers = JoinSet::new();
    for (writer, open) in [0, 0, 5, 5, 20, 20, 100, 100].into_iter().enumerate() {
        let client = scene.database.connect().await;
        writers.spawn(async move {
            for n in 0..40_u64 {
                client.batch_execute("begin").await.unwrap();
                insert(&client, &format!("t{}", writer % 3), 1).await;
                sleep(Duration::from_millis(open)).await;
                client.batch_execute("commit").await.unwrap();
                sleep(Duration::from_millis(n * 31 % 200)).await;
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    // What was missed would wait for minutes.
    scene.receiver.wait_for(320, PROMPT).await.unwrap();
    all_settled(&scene.client, PROMPT).await;
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 320);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_wake_it_and_it_falls_asleep_again() {
    let (scene, relay) = sleeping().await;
    let mut sent = 0;
    for burst in [1, 500, 1, 80, 3, 1000, 1] {
        insert(&scene.client, "t", burst).await;
        sent += u64::try_from(burst).unwrap();
        scene.receiver.wait_for(sent, PROMPT).await.unwrap();
        all_settled(&scene.client, PROMPT).await;
        asleep(&scene.client).await;
    }
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 1586);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_an_older_transaction_is_found_below_what_was_delivered() {
    let (scene, relay) = sleeping().await;
    let early = scene.database.connect().await;
    early.batch_execute("begin").await.unwrap();
    insert(&early, "t", 1).await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    early.batch_execute("commit").await.unwrap();
    scene.receiver.wait_for(6, PROMPT).await.unwrap();
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_queues_behind_an_old_writer_hears_the_new_ones() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let old = scene.database.connect().await;
    old.batch_execute("begin").await.unwrap();
    insert(&old, "t", 1).await;
    let relay = start(sleeper(&scene, "sleeper"));
    let queued = format!("select exists (select from {})", locks(1, false));
    eventually("it queues", SOON, async || {
        one(&scene.client, &queued).await
    })
    .await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    assert!(one::<bool>(&scene.client, &queued).await);
    old.batch_execute("commit").await.unwrap();
    scene.receiver.wait_for(6, PROMPT).await.unwrap();
    asleep(&scene.client).await;
    relay.stop().await;
}

#[tokio::test]
async fn one_that_queues_lets_go_when_messages_come_fast() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let old = scene.database.connect().await;
    old.batch_execute("begin").await.unwrap();
    insert(&old, "t", 1).await;
    let mut relay = sleeper(&scene, "sleeper");
    relay.endpoints[0].concurrency = 100;
    let relay = start(relay);
    let queued = format!("select exists (select from {})", locks(1, false));
    eventually("it queues", SOON, async || {
        one(&scene.client, &queued).await
    })
    .await;
    // It lets go while they come fast, and no longer: so they come until that is seen.
    let sent = AtomicU64::new(0);
    eventually("it lets go", SOON, async || {
        insert(&scene.client, "t", 200).await;
        sent.fetch_add(200, Ordering::Relaxed);
        !one::<bool>(&scene.client, &queued).await
    })
    .await;
    assert!(keeper(&scene.client).await.is_some(), "it keeps the bell");
    let sent = sent.into_inner();
    scene.receiver.wait_for(sent, SOON).await.unwrap();
    old.batch_execute("commit").await.unwrap();
    scene.receiver.wait_for(sent + 1, PROMPT).await.unwrap();
    asleep(&scene.client).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_later_comes_when_it_is_due() {
    let (scene, relay) = sleeping().await;
    let later = "insert into outbox.messages (topic, payload, due_at) values ('t', '1', now() + interval '2 s')";
    let start = Instant::now();
    scene.client.batch_execute(later).await.unwrap();
    scene.receiver.wait_for(1, PROMPT).await.unwrap();
    assert!(start.elapsed() > Duration::from_millis(1900));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_is_tried_again_while_it_sleeps() {
    let scene = Scene::new(|request| match request.number {
        1..=3 => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    let relay = start(sleeper(&scene, "sleeper"));
    asleep(&scene.client).await;
    insert(&scene.client, "t", 1).await;
    scene.receiver.wait_for(4, PROMPT).await.unwrap();
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_relay_gives_back_wakes_it() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let hanging = Receiver::start(|_| Reply::never()).unwrap();
    let mut hangs = sleeper(&scene, "hangs");
    hangs.endpoints = vec![endpoint("shop", &hanging.url("/"))];
    hangs.endpoints[0].concurrency = 1;
    hangs.config.grace = Duration::ZERO;
    hangs.config.doorbell = false;
    let hangs = start(hangs);
    insert(&scene.client, "t", 2).await;
    hanging.wait_for(1, SOON).await.unwrap();
    let relay = start(sleeper(&scene, "sleeper"));
    asleep(&scene.client).await;
    // It knows of the other that it has to be told.
    eventually("the other has seen it", SOON, async || {
        scene.database.store().doorbell().await.unwrap().kept
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.receiver.count(), 0);
    hangs.stop().await;
    scene.receiver.wait_for(2, PROMPT).await.unwrap();
    relay.stop().await;
}
