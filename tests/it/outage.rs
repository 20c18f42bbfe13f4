//! The database goes away, in one way or another, and comes back: relays go on by themselves, and nobody is taken for dead.
use std::{collections::HashSet, time::Duration};

use outbox_relay::{
    lab::{
        cluster::{self, Cluster, Stop},
        receiver::{Receiver, Reply},
    },
    store::Store,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::support::{
    binary::Directory,
    config, database, eventually,
    proxy::Proxy,
    relay::{LEASE, Running, endpoint, relay, start},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, insert_one, one, outcomes},
};

/// A server of the test's own with an outbox.
async fn cluster() -> (Cluster, String) {
    let cluster = Cluster::start(cluster::Options::default()).await.unwrap();
    let url = cluster.url("postgres");
    let store = Store::new(&config(&url)).unwrap();
    store.migrate(None, false).await.unwrap();
    (cluster, url)
}

/// A connection that ends with its server, and the task that drives it.
pub(crate) async fn connect(url: &str) -> (Client, JoinSet<()>) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        connection.await.ok();
    });
    (client, driver)
}

/// A relay at work.
pub(crate) fn started(database: &str, receiver: &Receiver, name: &str) -> Running {
    let mut relay = relay(database, endpoint("shop", &receiver.url("/")));
    relay.config.name = name.into();
    start(relay)
}

/// How many different messages came.
pub(crate) fn messages(receiver: &Receiver) -> u64 {
    let requests = receiver.requests();
    let keys: HashSet<_> = requests
        .iter()
        .map(|request| request.header("idempotency-key"))
        .collect();
    keys.len() as u64
}

/// Those that are registered.
pub(crate) async fn relays(client: &Client) -> HashSet<Uuid> {
    let rows = client.query("select relay from outbox.relays", &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

// === the server ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_postgres_for_longer_than_a_lease_takes_nobody_for_dead_and_repeats_nothing() {
    let (mut cluster, url) = cluster().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(300))).unwrap();
    let (client, driver) = connect(&url).await;
    let one = started(&url, &receiver, "one");
    let two = started(&url, &receiver, "two");
    eventually("both are registered", SOON, async || {
        relays(&client).await.len() == 2
    })
    .await;
    let before = relays(&client).await;
    insert(&client, "t", 300).await;
    receiver.wait_for(60, SOON).await.unwrap();
    assert!(receiver.in_flight() > 0);
    drop((client, driver));

    cluster.stop(Stop::Fast).await.unwrap();
    // The passing of this time is what is tested.
    sleep(LEASE * 2).await;
    cluster.restart().await.unwrap();

    let (client, _driver) = connect(&url).await;
    all_settled(&client, SOON).await;
    assert_eq!(relays(&client).await, before, "nobody was reaped");
    one.stop().await;
    two.stop().await;
    assert_eq!(
        count(&client, "attempts where outcome <> 'success'").await,
        0
    );
    assert_eq!((receiver.count(), messages(&receiver)), (300, 300));
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_outlives_its_lease_in_an_outage_is_cut_and_sent_again() {
    let (mut cluster, url) = cluster().await;
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::never(),
        _ => Reply::status(200),
    })
    .unwrap();
    let (client, driver) = connect(&url).await;
    let id = insert_one(&client, "payload", "'1'").await;
    let one = started(&url, &receiver, "one");
    receiver.wait_for(1, SOON).await.unwrap();
    let two = started(&url, &receiver, "two");
    eventually("both are registered", SOON, async || {
        relays(&client).await.len() == 2
    })
    .await;
    drop((client, driver));
    cluster.stop(Stop::Fast).await.unwrap();
    eventually("the request is cut", LEASE * 2, async || {
        receiver.in_flight() == 0
    })
    .await;
    cluster.restart().await.unwrap();

    let (client, _driver) = connect(&url).await;
    all_settled(&client, SOON).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(outcomes(&client, id).await, ["aborted", "success"]);
    assert_eq!(receiver.most_in_flight(), 1);
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_of_postgres_relays_register_anew_and_deliver() {
    let (mut cluster, url) = cluster().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(50))).unwrap();
    let (client, driver) = connect(&url).await;
    let one = started(&url, &receiver, "one");
    let two = started(&url, &receiver, "two");
    eventually("both are registered", SOON, async || {
        relays(&client).await.len() == 2
    })
    .await;
    let mut before = relays(&client).await;
    insert(&client, "t", 1_000).await;
    drop((client, driver));
    for round in 1..=2 {
        receiver.wait_for(round * 100, SOON).await.unwrap();
        cluster.kill_hard().await.unwrap();
        cluster.restart().await.unwrap();
        let (client, _driver) = connect(&url).await;
        let mut now = HashSet::new();
        eventually("both have registered anew", SOON, async || {
            now = relays(&client).await;
            now.len() == 2 && now.is_disjoint(&before)
        })
        .await;
        before = now;
    }
    let (client, _driver) = connect(&url).await;
    all_settled(&client, SOON).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(messages(&receiver), 1_000);
    assert_eq!(count(&client, "attempts where outcome = 'lost'").await, 0);
    let ends = "select count(distinct id) from outbox.attempts where settlement = 'delivered'";
    assert_eq!(crate::support::rows::one::<i64>(&client, ends).await, 1_000);
    assert_nothing_left(&client).await;
}

/// A server that loses one backend restarts all of them: it still says that it started long ago, and yet lease numbers may
/// come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_one_backend_was_killed_relays_register_anew_and_deliver() {
    let (cluster, url) = cluster().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(50))).unwrap();
    let (client, driver) = connect(&url).await;
    let running = started(&url, &receiver, "one");
    eventually("it is registered", SOON, async || {
        relays(&client).await.len() == 1
    })
    .await;
    let before = relays(&client).await;
    let epoch = "select epoch::text || pg_postmaster_start_time() from outbox.epoch";
    let (first, started_at) = (
        one::<String>(&client, epoch).await,
        one::<String>(&client, "select pg_postmaster_start_time()::text").await,
    );
    insert(&client, "t", 500).await;
    receiver.wait_for(100, SOON).await.unwrap();
    let claims = "select pid from pg_stat_activity where application_name = 'outbox-relay' limit 1";
    let pid = Pid::from_raw(one::<i32>(&client, claims).await).unwrap();
    drop((client, driver));
    kill_process(pid, Signal::KILL).unwrap();
    let mut again = None;
    eventually("it has registered anew", SOON, async || {
        let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await else {
            return false;
        };
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let now = client.query("select relay from outbox.relays", &[]).await;
        let now: HashSet<Uuid> = now.iter().flatten().map(|row| row.get(0)).collect();
        let anew = now.len() == 1 && now.is_disjoint(&before);
        again = Some((client, driver));
        anew
    })
    .await;
    let (client, _driver) = again.unwrap();
    assert_ne!(one::<String>(&client, epoch).await, first);
    let now = one::<String>(&client, "select pg_postmaster_start_time()::text").await;
    assert_eq!(now, started_at);
    all_settled(&client, SOON).await;
    running.stop().await;
    assert_eq!(messages(&receiver), 500);
    assert_eq!(count(&client, "attempts where outcome = 'lost'").await, 0);
    assert_nothing_left(&client).await;
    drop(cluster);
}

// === the connections ===

/// A container beside this one may take a second longer to start.
#[tokio::test]
async fn a_relay_that_starts_a_moment_before_its_database_waits_for_it() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    proxy.close(true);
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    let relay = directory.run(&config, &proxy.url(&database.url), "relay");
    eventually("it has tried", SOON, async || {
        relay.log().contains("trying again")
    })
    .await;
    proxy.close(false);
    insert(&client, "t", 3).await;
    all_settled(&client, SOON).await;
    assert_eq!(receiver.count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_whose_backends_are_terminated_again_and_again_deliver_everything() {
    let database = database().await;
    let client = database.connect().await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(20))).unwrap();
    let one_relay = started(&database.url, &receiver, "one");
    let other = started(&database.url, &receiver, "two");
    insert(&client, "t", 2_000).await;
    let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                     where datname = current_database() and pid <> pg_backend_pid()";
    let mut terminated = 0;
    for round in 1..=20 {
        receiver.wait_for(round * 80, SOON).await.unwrap();
        terminated += one::<i64>(&client, terminate).await;
    }
    assert!(terminated >= 20, "{terminated}");
    all_settled(&client, SOON).await;
    one_relay.stop().await;
    other.stop().await;
    assert_eq!(messages(&receiver), 2_000);
    // What was answered is settled, sooner or later: nothing is sent twice for a connection that broke.
    assert_eq!(receiver.count(), 2_000);
    assert_eq!(
        count(&client, "attempts where outcome <> 'success'").await,
        0
    );
    assert_nothing_left(&client).await;
}

/// The answer to a commit is lost: did it happen? The relay lives on, and its lease is far longer than this test.
async fn an_answer_is_lost(word: &str) {
    let database = database().await;
    let client = database.connect().await;
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut patient = relay(
        &proxy.url(&database.url),
        endpoint("shop", &receiver.url("/")),
    );
    patient.config.lease = Duration::from_secs(300);
    let relay = start(patient);
    insert(&client, "t", 100).await;
    all_settled(&client, SOON).await;
    let before = relays(&client).await;
    for round in 1..=3 {
        proxy.lose_answer_to(word);
        insert(&client, "t", 100).await;
        eventually("an answer is lost", SOON, async || proxy.lost() == round).await;
        all_settled(&client, SOON).await;
    }
    assert_eq!(relays(&client).await, before, "it is the same registration");
    relay.stop().await;
    assert_eq!((receiver.count(), messages(&receiver)), (400, 400));
    assert_eq!(count(&client, "attempts").await, 400);
    assert_eq!(count(&client, "delivered").await, 400);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_claim_whose_commit_is_unknown_is_given_back_while_its_relay_lives() {
    an_answer_is_lost("outbox.claim(").await;
}

#[tokio::test]
async fn a_claim_whose_messages_could_not_be_loaded_is_given_back() {
    an_answer_is_lost("AS expires_at").await;
}

#[tokio::test]
async fn a_settle_whose_commit_is_unknown_is_sent_again_and_changes_nothing() {
    an_answer_is_lost("outbox.settle(").await;
}

#[tokio::test]
async fn a_relay_that_fails_to_register_anew_tries_until_it_succeeds() {
    let database = database().await;
    let client = database.connect().await;
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = started(&proxy.url(&database.url), &receiver, "relay");
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    proxy.lose_answer_to("outbox.register(");
    // As if another relay had reaped it.
    let reap = "delete from outbox.relays";
    client.batch_execute(reap).await.unwrap();
    eventually("the answer is lost", SOON, async || proxy.lost() == 1).await;
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    // The registration that it never heard of is dead, and it reaps it.
    eventually("one registration is left", SOON, async || {
        relays(&client).await.len() == 1
    })
    .await;
    relay.stop().await;
    assert_eq!(receiver.count(), 20);
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_cut_off_stops_its_requests_before_another_one_sends_them() {
    let database = database().await;
    let client = database.connect().await;
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::never(),
        _ => Reply::status(200),
    })
    .unwrap();
    let id = insert_one(&client, "payload", "'1'").await;
    let cut_off = started(&proxy.url(&database.url), &receiver, "cut off");
    receiver.wait_for(1, SOON).await.unwrap();
    let before = relays(&client).await;
    let other = started(&database.url, &receiver, "other");
    eventually("both are registered", SOON, async || {
        relays(&client).await.len() == 2
    })
    .await;

    proxy.hole(true);
    receiver.wait_for(2, SOON).await.unwrap();
    assert_eq!(receiver.most_in_flight(), 1, "never in both hands");
    all_settled(&client, SOON).await;
    assert_eq!(outcomes(&client, id).await, ["lost", "success"]);

    proxy.hole(false);
    eventually("it registers anew", SOON, async || {
        let now = relays(&client).await;
        now.len() == 2 && now.is_disjoint(&before)
    })
    .await;
    other.stop().await;
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    cut_off.stop().await;
    assert_eq!(receiver.count(), 12);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_relay_that_is_stopped_while_the_database_is_silent_ends_after_its_grace_period() {
    let database = database().await;
    let client = database.connect().await;
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut relay = relay(
        &proxy.url(&database.url),
        endpoint("shop", &receiver.url("/")),
    );
    relay.config.grace = Duration::from_millis(500);
    let relay = start(relay);
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    proxy.hole(true);
    insert(&client, "t", 10).await;
    let start = Instant::now();
    relay.stop().await;
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );

    let heir = started(&database.url, &receiver, "heir");
    all_settled(&client, SOON).await;
    eventually("the other is reaped", SOON, async || {
        relays(&client).await.len() == 1
    })
    .await;
    heir.stop().await;
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_and_back_again_and_again_loses_nothing() {
    let database = database().await;
    let client = database.connect().await;
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(10))).unwrap();
    let relay = started(&proxy.url(&database.url), &receiver, "relay");
    insert(&client, "t", 1_000).await;
    for round in 1..=5 {
        receiver.wait_for(round * 100, SOON).await.unwrap();
        proxy.close(true);
        eventually("what was in flight is answered", SOON, async || {
            receiver.in_flight() == 0
        })
        .await;
        proxy.close(false);
    }
    all_settled(&client, SOON).await;
    relay.stop().await;
    assert_eq!((receiver.count(), messages(&receiver)), (1_000, 1_000));
    assert_nothing_left(&client).await;
}
