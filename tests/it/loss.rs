//! What was committed is delivered, all of it; what was rolled back never is.
use std::{collections::HashSet, time::Duration};

use outbox_relay::lab::receiver::{Options, Receiver, Reply};

use crate::support::{
    database,
    relay::{endpoint, relay, routes, start, until_empty},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, mandate, one},
};

/// The values of `n` in the payloads that came, in order.
fn numbers(receiver: &Receiver) -> Vec<u64> {
    let number =
        |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).unwrap()["n"].as_u64();
    let requests = receiver.requests();
    requests
        .iter()
        .map(|request| number(&request.body).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_rows_of_one_transaction_are_all_delivered() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200).after(Duration::from_millis(5))).unwrap();
    let relay = start(relay(&database.url, endpoint("shop", &receiver.url("/"))));
    insert(&client, "t", 5_000).await;
    all_settled(&client, Duration::from_secs(60)).await;
    assert_eq!(relay.stop().await.delivered, 5_000);
    let seen: HashSet<u64> = numbers(&receiver).into_iter().collect();
    assert_eq!(seen, (1..=5_000).collect());
    assert_eq!(receiver.count(), 5_000);
    // More than 99 % of them go over a connection that was there. Now and then one is made for nothing: another became free
    // while it was being made.
    assert!(receiver.connections() < 50, "{}", receiver.connections());
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn rows_that_were_rolled_back_are_never_sent() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = start(relay(&database.url, endpoint("shop", &receiver.url("/"))));
    let row = |n: u64| {
        format!("insert into outbox.messages (topic, payload) values ('t', '{{\"n\": {n}}}');")
    };
    client
        .batch_execute(&format!("begin; {} rollback", row(1)))
        .await
        .unwrap();
    let savepoint = format!(
        "begin; {} savepoint s; {} rollback to savepoint s; {} commit",
        row(2),
        row(3),
        row(4)
    );
    client.batch_execute(&savepoint).await.unwrap();
    // One that a failed statement rolls back.
    let failed = format!("begin; {} select 1/0; commit", row(5));
    client.batch_execute(&failed).await.unwrap_err();
    client.batch_execute("rollback").await.unwrap();
    insert(&client, "t", 1).await;
    all_settled(&client, SOON).await;
    relay.stop().await;
    let mut seen = numbers(&receiver);
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 4]);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_row_with_an_early_seq_that_commits_late_is_delivered() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = start(relay(&database.url, endpoint("shop", &receiver.url("/"))));
    let slow = database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    insert(&slow, "t", 3).await;
    insert(&client, "t", 500).await;
    receiver.wait_for(500, SOON).await.unwrap();
    // Later rows keep coming, so the lane never runs dry for long.
    for _ in 0..5 {
        insert(&client, "t", 100).await;
    }
    slow.batch_execute("commit").await.unwrap();
    receiver.wait_for(1_003, SOON).await.unwrap();
    all_settled(&client, SOON).await;
    relay.stop().await;
    assert_eq!(receiver.count(), 1_003);
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn until_empty_delivers_what_is_due_and_leaves_what_is_not() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|request| match request.number % 10 {
        0 => Reply::status(503),
        _ => Reply::status(200),
    })
    .unwrap();
    let mut relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    relay
        .endpoints
        .push(endpoint("closed", &receiver.url("/closed")));
    relay.routes = routes(&[("order.*", "shop"), ("closed", "closed")]);
    database
        .store()
        .add_endpoints(&[("closed", Duration::from_secs(10))])
        .await
        .unwrap();
    database
        .store()
        .pause("closed", mandate("a test", "me"))
        .await
        .unwrap();
    for topic in ["order.a", "order.b"] {
        insert(&client, topic, 200).await;
    }
    insert(&client, "closed", 5).await;
    insert(&client, "nowhere", 7).await;
    let later = "insert into outbox.messages (topic, payload, due_at) values ('order.a', '{}', now() + interval '1 hour')";
    client.batch_execute(later).await.unwrap();

    let summary = until_empty(relay).await;
    // A failed one waits for its retry: it is not due, and may be left or not.
    let failed = count(&client, "messages where attempts > 0").await;
    assert_eq!(summary.delivered, 400 - u64::try_from(failed).unwrap());
    assert_eq!(count(&client, "messages where topic = 'closed'").await, 5);
    assert_eq!(count(&client, "messages where topic = 'nowhere'").await, 7);
    assert_eq!(count(&client, "messages").await, 13 + failed);
    assert_eq!(count(&client, "leases").await, 0);
    assert_eq!(count(&client, "relays").await, 0);
    let closed = receiver
        .requests()
        .iter()
        .any(|request| request.path == "/closed");
    assert!(!closed);
}

#[tokio::test]
async fn until_empty_ends_at_once_where_nothing_is_pending() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    assert_eq!(until_empty(relay).await.delivered, 0);
    assert_nothing_left(&database.connect().await).await;
}

#[tokio::test]
async fn payloads_larger_than_the_memory_budget_are_delivered_a_few_at_a_time() {
    let database = database().await;
    let client = database.connect().await;
    let options = Options {
        keep: usize::MAX,
        keep_bodies: false,
    };
    let receiver = Receiver::start_with(options, |request| {
        assert!(request.body.len() > 64_000);
        Reply::status(200).after(Duration::from_millis(20))
    })
    .unwrap();
    let mut relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    relay.config.memory = 130_000;
    let large = "insert into outbox.messages (topic, payload) \
                 select 't', to_json(repeat(case when n % 10 = 0 then 'three times the budget' else 'x' end, 65000 - n)) \
                 from generate_series(1, 60) n";
    client.batch_execute(large).await.unwrap();
    assert_eq!(
        one::<i64>(
            &client,
            "select max(size)::bigint / 130000 from outbox.messages"
        )
        .await,
        10
    );
    let relay = start(relay);
    all_settled(&client, SOON).await;
    assert_eq!(relay.stop().await.delivered, 60);
    assert_eq!(receiver.count(), 60);
    assert!(
        receiver.most_in_flight() <= 3,
        "{} at once",
        receiver.most_in_flight()
    );
    assert_nothing_left(&client).await;
}
