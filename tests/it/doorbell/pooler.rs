//! PgBouncer in transaction mode: before the application it changes nothing; before the relay there is no bell to keep.
use std::time::Duration;

use outbox_relay::lab::receiver::Reply;
use tokio::{task::JoinSet, time::sleep};
use tokio_postgres::NoTls;

use super::{PROMPT, arrives, keeper, locks, sleeper, sleeping};
use crate::support::{
    binary::{Directory, outbox_relay},
    config, eventually,
    pgbouncer::PgBouncer,
    relay::start,
    rows::{SOON, count, one},
    scene::Scene,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_behind_it_wakes_the_relay() {
    let (scene, relay) = sleeping().await;
    let pooler = PgBouncer::start(&scene.database.url).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let url = pooler.url(&scene.database.url);
        tasks.spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            let mut driver = JoinSet::new();
            driver.spawn(connection);
            for pause in 0..25 {
                let insert = "begin; insert into outbox.messages (topic) values ('t'); commit";
                client.batch_execute(insert).await.unwrap();
                sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    scene.receiver.wait_for(100, PROMPT).await.unwrap();
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_behind_it_polls_and_leaves_nothing_on_its_sessions() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let pooler = PgBouncer::start(&scene.database.url).await;
    let url = pooler.url(&scene.database.url);
    let directory = Directory::new();
    let path = directory.config(&scene.receiver.url("/"), "");
    let relay = directory.run(&path, &url, "pooled");
    eventually("it finds out", SOON, async || {
        relay.log().contains("no doorbell: nothing is heard")
    })
    .await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    assert_eq!(keeper(&scene.client).await, None);
    for lock in [1, 2, 3] {
        let held = format!("select count(*) from {}", locks(lock, true));
        assert_eq!(one::<i64>(&scene.client, &held).await, 0, "{lock}");
    }
    let config = path.to_str().unwrap();
    let checked = outbox_relay(&url, &["check", "--config", config]).await;
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(said.contains("doorbell: nothing is heard"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_relay_behind_it_another_keeps_the_bell() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let pooler = PgBouncer::start(&scene.database.url).await;
    let mut pooled = sleeper(&scene, "pooled");
    pooled.database = config(&pooler.url(&scene.database.url));
    let pooled = start(pooled);
    eventually("it is registered", SOON, async || {
        count(&scene.client, "relays").await == 1
    })
    .await;
    let direct = start(sleeper(&scene, "direct"));
    super::asleep(&scene.client).await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    pooled.stop().await;
    direct.stop().await;
}
