//! The keeper dies, is cut off, or loses its sessions: another one keeps the bell, and meanwhile nothing waits longer than a poll.
use outbox_relay::{
    lab::{
        cluster::{self, Cluster, Stop},
        receiver::{Receiver, Reply},
    },
    store::Store,
};
use rustix::process::Signal;
use tokio::{task::JoinSet, time::Instant};
use tokio_postgres::NoTls;

use super::{NEVER, PROMPT, arrives, asleep, keeper, sleeper, sleeping};
use crate::support::{
    binary::Directory,
    config, eventually,
    proxy::Proxy,
    relay::{LEASE, endpoint, relay, start},
    rows::{SOON, count, insert, one},
    scene::Scene,
};

/// Both sessions of the keeper end.
const TERMINATE: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                         where datname = current_database() and application_name = 'outbox-relay doorbell'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_is_killed_asleep_has_an_heir_in_a_moment() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let directory = Directory::new();
    let path = directory.config(&scene.receiver.url("/"), "");
    let mut doomed = directory.run(&path, &scene.database.url, "doomed");
    asleep(&scene.client).await;
    let before = keeper(&scene.client).await;
    let heirs = ["one", "two", "three"].map(|name| start(sleeper(&scene, name)));
    eventually("all are registered", SOON, async || {
        count(&scene.client, "relays").await == 4
    })
    .await;
    arrives(&scene, &scene.client).await;

    doomed.signal(Signal::KILL);
    doomed.end(SOON).await;
    let killed = Instant::now();
    arrives(&scene, &scene.client).await;
    eventually("there is another keeper", PROMPT, async || {
        let now = keeper(&scene.client).await;
        now.is_some() && now != before
    })
    .await;
    assert!(killed.elapsed() < PROMPT, "{:?}", killed.elapsed());
    asleep(&scene.client).await;
    for _ in 0..5 {
        arrives(&scene, &scene.client).await;
    }
    for heir in heirs {
        heir.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_stops_leaves_the_bell_to_another() {
    let (scene, first) = sleeping().await;
    let second = start(sleeper(&scene, "second"));
    eventually("both are registered", SOON, async || {
        count(&scene.client, "relays").await == 2
    })
    .await;
    first.stop().await;
    asleep(&scene.client).await;
    arrives(&scene, &scene.client).await;
    second.stop().await;
    // The server notices that its sessions are gone a moment later.
    eventually("nobody keeps the bell", SOON, async || {
        keeper(&scene.client).await.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_is_swallowed_by_the_network_is_hung_up_on() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let server: reqwest::Url = scene.database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let mut swallowed = sleeper(&scene, "swallowed");
    swallowed.database = config(&proxy.url(&scene.database.url));
    let swallowed = start(swallowed);
    asleep(&scene.client).await;
    let before = keeper(&scene.client).await;
    let heir = start(sleeper(&scene, "heir"));
    eventually("both are registered", SOON, async || {
        count(&scene.client, "relays").await == 2
    })
    .await;

    // The proxy acknowledges whatever the server sends: TCP notices nothing.
    proxy.hole(true);
    arrives(&scene, &scene.client).await;
    eventually("the heir keeps the bell", LEASE * 2 + SOON, async || {
        let now = keeper(&scene.client).await;
        now.is_some() && now != before
    })
    .await;
    let doorbells = "select count(*) from pg_stat_activity \
                     where datname = current_database() and application_name = 'outbox-relay doorbell'";
    eventually("only its sessions are left", SOON, async || {
        one::<i64>(&scene.client, doorbells).await == 2
    })
    .await;
    asleep(&scene.client).await;
    arrives(&scene, &scene.client).await;
    heir.stop().await;

    // It comes back, and has no heir now.
    proxy.hole(false);
    asleep(&scene.client).await;
    arrives(&scene, &scene.client).await;
    swallowed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_whose_sessions_are_ended_polls_and_keeps_it_again() {
    let (scene, relay) = sleeping().await;
    for _ in 0..3 {
        let before = keeper(&scene.client).await;
        assert_eq!(one::<i64>(&scene.client, TERMINATE).await, 2);
        arrives(&scene, &scene.client).await;
        eventually("it keeps it again", SOON, async || {
            let now = keeper(&scene.client).await;
            now.is_some() && now != before
        })
        .await;
        asleep(&scene.client).await;
        arrives(&scene, &scene.client).await;
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_cut_off_for_a_moment_keeps_it_again() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let server: reqwest::Url = scene.database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let mut relay = sleeper(&scene, "cut");
    relay.database = config(&proxy.url(&scene.database.url));
    let relay = start(relay);
    for _ in 0..3 {
        asleep(&scene.client).await;
        arrives(&scene, &scene.client).await;
        let before = keeper(&scene.client).await;
        proxy.cut();
        arrives(&scene, &scene.client).await;
        eventually("it keeps it again", SOON, async || {
            let now = keeper(&scene.client).await;
            now.is_some() && now != before
        })
        .await;
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_database_it_is_kept_again() {
    let mut cluster = Cluster::start(cluster::Options::default()).await.unwrap();
    let url = cluster.url("postgres");
    let store = Store::new(&config(&url)).unwrap();
    store.migrate(None, false).await.unwrap();
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut sleeper = relay(&url, endpoint("shop", &receiver.url("/")));
    sleeper.config.idle = NEVER;
    let relay = start(sleeper);
    for round in 1..=3 {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        asleep(&client).await;
        insert(&client, "t", 1).await;
        receiver.wait_for(round, PROMPT).await.unwrap();
        if round == 1 {
            cluster.stop(Stop::Immediate).await.unwrap();
        }
        cluster.restart().await.unwrap();
    }
    relay.stop().await;
}
