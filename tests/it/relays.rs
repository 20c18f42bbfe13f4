//! Several relays share one outbox: no message twice while all live, none lost when one of them doesn't.
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use outbox_relay::{
    lab::receiver::{Options, Receiver, Reply},
    retry::Backoff,
};
use rustix::process::Signal;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    Database,
    binary::Directory,
    database, eventually,
    relay::{LEASE, Running, endpoint, relay, routes, start},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, insert_one, one, outcomes},
    scene::Scene,
};

const NO_BODIES: Options = Options {
    keep: usize::MAX,
    keep_bodies: false,
};

/// How often each message was received.
fn received(receivers: &[&Receiver]) -> HashMap<String, u32> {
    let mut times = HashMap::new();
    for request in receivers.iter().flat_map(|receiver| receiver.requests()) {
        let key = request.header("idempotency-key").unwrap().to_owned();
        *times.entry(key).or_default() += 1;
    }
    times
}

fn started(database: &Database, receiver: &Receiver, name: &str) -> Running {
    let mut relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    relay.config.name = name.into();
    start(relay)
}

async fn stop_all(relays: Vec<Running>) -> u64 {
    let mut delivered = 0;
    for relay in relays {
        delivered += relay.stop().await.delivered;
    }
    delivered
}

// === while all live ===

async fn every_row_once(relays: usize, rows: i32) {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start_with(NO_BODIES, |_| Reply::status(200)).unwrap();
    insert(&client, "order.created", rows / 2).await;
    let relays: Vec<Running> = (1..=relays)
        .map(|number| started(&database, &receiver, &format!("relay-{number}")))
        .collect();
    for _ in 0..10 {
        insert(&client, "order.created", rows / 20).await;
    }
    all_settled(&client, Duration::from_secs(60)).await;

    let delivered = stop_all(relays).await;
    let rows = u64::try_from(rows).unwrap();
    assert_eq!((delivered, receiver.count()), (rows, rows));
    assert_eq!(received(&[&receiver]).len() as u64, rows);
    let attempts = "select count(distinct id) = count(*) and bool_and(outcome = 'success' and attempt = 1) \
                    and count(*) = (select count(*) from outbox.delivered) from outbox.attempts";
    assert!(one::<bool>(&client, attempts).await);
    assert_nothing_left(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_deliver_ten_thousand_rows_once_each() {
    every_row_once(2, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_relays_deliver_ten_thousand_rows_once_each() {
    every_row_once(4, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_that_route_a_topic_differently_deliver_each_row_once() {
    let database = database().await;
    let client = database.connect().await;
    let old = Receiver::start_with(NO_BODIES, |_| Reply::status(200)).unwrap();
    let new = Receiver::start_with(NO_BODIES, |_| Reply::status(200)).unwrap();
    insert(&client, "order.created", 2_000).await;
    let relays = [("old", &old), ("new", &new)].map(|(name, receiver)| {
        let mut relay = relay(&database.url, endpoint(name, &receiver.url("/")));
        relay.routes = routes(&[("order.*", name)]);
        start(relay)
    });
    for _ in 0..10 {
        insert(&client, "order.created", 200).await;
    }
    all_settled(&client, Duration::from_secs(60)).await;
    stop_all(relays.into()).await;

    assert_eq!(old.count() + new.count(), 4_000);
    assert_eq!(received(&[&old, &new]).len(), 4_000);
    assert!(old.count() > 0 && new.count() > 0);
    assert_nothing_left(&client).await;
}

// === when one dies ===

#[tokio::test]
async fn a_message_whose_relay_is_killed_is_sent_again_within_two_lease_times() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::never(),
        _ => Reply::status(200),
    })
    .unwrap();
    let config = directory.config(&receiver.url("/"), "");
    let mut doomed = directory.run(&config, &database.url, "doomed");
    let id = insert_one(&client, "payload, key", "'{\"n\": 1}', 'k'").await;
    receiver.wait_for(1, SOON).await.unwrap();
    let heir = started(&database, &receiver, "heir");
    eventually("both relays are registered", SOON, async || {
        count(&client, "relays").await == 2
    })
    .await;

    doomed.signal(Signal::KILL);
    doomed.end(SOON).await;
    receiver.wait_for(2, LEASE * 2).await.unwrap();
    all_settled(&client, SOON).await;
    heir.stop().await;

    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    let key = format!("\"{id}\"");
    for request in &requests {
        assert_eq!(request.header("idempotency-key"), Some(key.as_str()));
        assert_eq!(request.body, "{\"n\": 1}");
    }
    assert_eq!(requests[0].header("outbox-attempt"), Some("1"));
    assert_eq!(requests[1].header("outbox-attempt"), Some("2"));
    assert_eq!(outcomes(&client, id).await, ["lost", "success"]);
    assert_nothing_left(&client).await;
}

/// Locks all rows, whose answers are not out yet, and waits for the settle that waits for them.
async fn held_up_settle(database: &Database) -> Client {
    let lock = database.connect().await;
    let all = "begin; select from outbox.messages for update";
    lock.batch_execute(all).await.unwrap();
    let waits = "select count(*) > 0 from pg_stat_activity \
                 where datname = current_database() and application_name = 'outbox-relay' and wait_event_type = 'Lock'";
    let client = database.connect().await;
    eventually("the settle waits", SOON, async || one(&client, waits).await).await;
    lock
}

#[tokio::test]
async fn a_message_that_was_accepted_but_not_settled_is_sent_once_more_under_the_same_key() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(200).after(Duration::from_millis(300)),
        _ => Reply::status(200),
    })
    .unwrap();
    let config = directory.config(&receiver.url("/"), "");
    let mut doomed = directory.run(&config, &database.url, "doomed");
    let id = insert_one(&client, "payload", "'1'").await;
    receiver.wait_for(1, SOON).await.unwrap();
    let lock = held_up_settle(&database).await;
    doomed.signal(Signal::KILL);
    doomed.end(SOON).await;
    // As a dead host's: what it had sent to the server must not be carried out after all.
    let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                     where datname = current_database() and application_name = 'outbox-relay'";
    one::<i64>(&client, terminate).await;
    lock.batch_execute("rollback").await.unwrap();

    let heir = started(&database, &receiver, "heir");
    all_settled(&client, SOON).await;
    heir.stop().await;
    assert_eq!(received(&[&receiver]), [(format!("\"{id}\""), 2)].into());
    assert_eq!(outcomes(&client, id).await, ["lost", "success"]);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_message_that_is_sent_again_after_a_kill_has_the_same_webhook_id() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::never(),
        _ => Reply::status(200),
    })
    .unwrap();
    let sign = "[defaults]\nsign = { secrets = [\"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"] }";
    let config = directory.config(&receiver.url("/"), sign);
    let mut doomed = directory.run(&config, &database.url, "doomed");
    let id = insert_one(&client, "payload", "'1'").await;
    receiver.wait_for(1, SOON).await.unwrap();
    doomed.signal(Signal::KILL);
    doomed.end(SOON).await;
    let mut heir = directory.run(&config, &database.url, "heir");
    all_settled(&client, SOON).await;
    heir.signal(Signal::TERM);
    assert_eq!(heir.end(SOON).await.code(), Some(0), "{}", heir.log());

    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(&*id.to_string()));
        assert!(request.header("webhook-signature").is_some());
    }
    assert_eq!(outcomes(&client, id).await, ["lost", "success"]);
}

// === when one is late ===

#[tokio::test]
async fn the_late_result_of_a_relay_that_was_taken_for_dead_changes_nothing() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|request| match request.number {
        // It is there before the relay that waits for it can read it.
        1 => Reply::status(422).after(Duration::from_millis(500)),
        2 => Reply::status(200).after(Duration::from_secs(3)),
        _ => Reply::status(200),
    })
    .unwrap();
    let config = directory.config(&receiver.url("/"), "");
    let mut sleeper = directory.run(&config, &database.url, "sleeper");
    let id = insert_one(&client, "payload", "'1'").await;
    receiver.wait_for(1, SOON).await.unwrap();
    let of_sleeper = "select relay from outbox.relays where name = 'sleeper'";
    let before: Uuid = one(&client, of_sleeper).await;
    sleeper.signal(Signal::STOP);

    let other = started(&database, &receiver, "other");
    receiver.wait_for(2, SOON).await.unwrap();
    sleeper.signal(Signal::CONT);
    eventually("it registers anew", SOON, async || {
        let row = client.query_opt(of_sleeper, &[]).await.unwrap();
        row.is_some_and(|row| row.get::<_, Uuid>(0) != before)
    })
    .await;
    all_settled(&client, SOON).await;
    other.stop().await;
    assert_eq!(receiver.count(), 2);
    assert_eq!(outcomes(&client, id).await, ["lost", "success"]);
    assert_eq!(count(&client, "dead_letters").await, 0);

    // And it works on.
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    sleeper.signal(Signal::TERM);
    assert_eq!(sleeper.end(SOON).await.code(), Some(0));
    assert_eq!(receiver.count(), 12);
    assert_nothing_left(&client).await;
}

// === when one is told to stop ===

/// What a relay holds, by the database.
async fn leased(client: &Client, name: &str) -> i64 {
    let query = "select coalesce(sum(cardinality(l.ids)), 0)::bigint \
                 from outbox.leases l join outbox.relays r using (relay) where r.name = $1";
    client.query_one(query, &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_relay_that_is_stopped_gives_back_what_it_has_not_sent_and_finishes_what_it_has() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|request| match request.number {
        1..=4 => Reply::status(200).after(Duration::from_secs(4)),
        _ => Reply::status(200),
    })
    .unwrap();
    insert(&client, "t", 8).await;
    let config = directory.config(&receiver.url("/"), "");
    let mut leaving = directory.run(&config, &database.url, "leaving");
    receiver.wait_for(4, SOON).await.unwrap();
    eventually("it holds more than it can send at once", SOON, async || {
        leased(&client, "leaving").await == 8
    })
    .await;
    let staying = started(&database, &receiver, "staying");
    eventually("both relays are registered", SOON, async || {
        count(&client, "relays").await == 2
    })
    .await;

    leaving.signal(Signal::TERM);
    receiver.wait_for(8, Duration::from_secs(1)).await.unwrap();
    assert_eq!(leaving.end(SOON).await.code(), Some(0), "{}", leaving.log());
    assert_eq!(leased(&client, "leaving").await, 0);
    assert_eq!(count(&client, "relays where name = 'leaving'").await, 0);
    all_settled(&client, SOON).await;
    staying.stop().await;
    let keys: HashSet<_> = received(&[&receiver]).into_keys().collect();
    assert_eq!((receiver.count(), keys.len()), (8, 8), "each row once");
    assert_eq!(
        count(&client, "attempts where outcome <> 'success'").await,
        0
    );
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_relay_whose_grace_period_is_over_ends_with_success_and_keeps_the_rows() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver = Receiver::start(|_| Reply::never()).unwrap();
    insert(&client, "t", 6).await;
    let config = directory.config(&receiver.url("/"), "grace = \"500ms\"");
    let mut relay = directory.run(&config, &database.url, "relay");
    receiver.wait_for(4, SOON).await.unwrap();
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    assert_eq!(receiver.count(), 4);
    let left = (
        count(&client, "messages").await,
        count(&client, "leases").await,
        count(&client, "relays").await,
    );
    assert_eq!(left, (6, 0, 0));
    assert_eq!(
        count(&client, "attempts where outcome = 'aborted'").await,
        4
    );
}

#[tokio::test]
async fn a_stop_between_an_answer_and_its_settle_makes_no_failure_of_it() {
    let database = database().await;
    let client = database.connect().await;
    let directory = Directory::new();
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(300))).unwrap();
    let config = directory.config(&receiver.url("/"), "");
    let mut relay = directory.run(&config, &database.url, "relay");
    insert(&client, "t", 3).await;
    receiver.wait_for(3, SOON).await.unwrap();
    let lock = held_up_settle(&database).await;
    relay.signal(Signal::TERM);
    eventually("it knows that it is to stop", SOON, async || {
        relay.log().contains("SIGTERM")
    })
    .await;
    assert_eq!(
        count(&client, "messages").await,
        3,
        "nothing is settled yet"
    );
    lock.batch_execute("rollback").await.unwrap();
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    assert_eq!(receiver.count(), 3);
    let told = "attempts where outcome = 'success' and settlement = 'delivered' and attempt = 1";
    assert_eq!(count(&client, told).await, 3);
    assert_eq!(count(&client, "attempts").await, 3);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_shutdown_makes_no_dead_letter_of_a_message_on_its_last_attempt() {
    let scene = Scene::new(|_| Reply::never()).await;
    insert(&scene.client, "t", 1).await;
    let mut relay = scene.relay();
    relay.config.grace = Duration::ZERO;
    relay.endpoints[0].retry.max_attempts = 1;
    let relay = start(relay);
    scene.receiver.wait_for(1, SOON).await.unwrap();
    relay.stop().await;
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
    assert_eq!(count(&scene.client, "messages where attempts = 1").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_relays_do_not_try_a_failing_message_more_often_than_one() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(503)).unwrap();
    let delay = Duration::from_millis(300);
    let relays: Vec<Running> = (1..=4)
        .map(|number| {
            let mut shop = endpoint("shop", &receiver.url("/"));
            shop.retry.max_attempts = 5;
            shop.retry.backoff = Backoff::Full {
                base: delay,
                factor: 1.0,
                cap: delay,
            };
            let mut relay = relay(&database.url, shop);
            relay.config.name = format!("relay-{number}");
            start(relay)
        })
        .collect();
    let id = insert_one(&client, "payload", "'1'").await;
    all_settled(&client, SOON).await;
    assert_eq!(stop_all(relays).await, 0);
    assert_eq!(receiver.count(), 5);
    assert_eq!(outcomes(&client, id).await, ["unavailable"; 5]);
    let attempts = "select count(distinct attempt) from outbox.attempts";
    assert_eq!(one::<i64>(&client, attempts).await, 5);
    assert_nothing_left(&client).await;
}
