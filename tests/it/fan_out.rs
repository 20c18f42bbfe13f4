//! Topics that go to several endpoints: each delivery goes its own way, under a key of its own.

mod change;
mod expand;
mod two_lanes;

use std::time::Duration;

use outbox_relay::{
    delivery::Endpoint,
    lab::receiver::{Receiver, Reply, Request},
    message::{Class, Reason},
    relay::Relay,
    route::{OnDead, Order, Pattern, Route, Routes},
};
use uuid::Uuid;

use crate::support::{
    database, eventually,
    relay::{endpoint, relay, start, until_empty},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, insert_one, outcomes},
};

/// A relay whose every topic goes to all of these.
fn to_all(database: &str, endpoints: Vec<Endpoint>, order: Order) -> Relay {
    let route = Route {
        topic: Pattern::parse("**").unwrap(),
        to: endpoints
            .iter()
            .map(|one| one.name.as_str().into())
            .collect(),
        order,
    };
    Relay {
        routes: Routes::new(vec![route]),
        endpoints,
        ..relay(database, endpoint("unused", "http://127.0.0.1:9/"))
    }
}

/// The keys of all requests, without their quotes.
fn keys(receiver: &Receiver) -> Vec<Uuid> {
    let key = |request: &Request| {
        let key = request.header("idempotency-key").unwrap();
        key.trim_matches('"').parse().unwrap()
    };
    receiver.requests().iter().map(key).collect()
}

/// A row with an early `seq` lies below the floor where fan-out goes on.
#[tokio::test]
async fn a_row_that_commits_late_becomes_one_per_endpoint_too() {
    let database = database().await;
    let client = database.connect().await;
    let receivers = [(); 2].map(|()| Receiver::start(|_| Reply::status(200)).unwrap());
    let endpoints = ["one", "two"]
        .iter()
        .zip(&receivers)
        .map(|(name, receiver)| endpoint(name, &receiver.url("/")))
        .collect();
    let relay = start(to_all(&database.url, endpoints, Order::None));
    let slow = database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    insert(&slow, "t", 3).await;
    insert(&client, "t", 300).await;
    for receiver in &receivers {
        receiver.wait_for(300, SOON).await.unwrap();
    }
    // Later rows keep coming, so the lane never runs dry for long.
    for _ in 0..5 {
        insert(&client, "t", 50).await;
    }
    slow.batch_execute("commit").await.unwrap();
    all_settled(&client, SOON).await;
    relay.stop().await;
    for receiver in &receivers {
        assert_eq!(receiver.count(), 553);
    }
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn each_endpoint_gets_every_message_under_a_key_of_its_own() {
    let database = database().await;
    let client = database.connect().await;
    let receivers = [(); 2].map(|()| Receiver::start(|_| Reply::status(200)).unwrap());
    let id = insert_one(
        &client,
        "key, type, payload, headers, expires_at",
        "'k', 'paid', '{\"n\": 1.50, \"n\": 2}', '{\"x-a\": \"1\"}', now() + interval '1 hour'",
    )
    .await;
    let endpoints = vec![
        endpoint("billing", &receivers[0].url("/")),
        endpoint("audit", &receivers[1].url("/")),
    ];
    let running = start(to_all(&database.url, endpoints, Order::None));
    all_settled(&client, SOON).await;
    running.stop().await;
    assert_nothing_left(&client).await;
    for (receiver, name) in receivers.iter().zip(["billing", "audit"]) {
        let requests = receiver.requests();
        assert_eq!(requests.len(), 1, "{name}");
        let request = &requests[0];
        assert_eq!(&*request.body, b"{\"n\": 1.50, \"n\": 2}");
        assert_eq!(keys(receiver), [Uuid::new_v5(&id, name.as_bytes())]);
        let header = |name| request.header(name).unwrap_or_default().to_owned();
        assert_eq!(header("outbox-message-id"), id.to_string());
        assert_eq!(header("outbox-topic"), "t");
        assert_eq!(header("outbox-key"), "k");
        assert_eq!(header("outbox-attempt"), "1");
        assert_eq!(header("x-a"), "1");
    }
    assert_eq!(outcomes(&client, id).await, ["success", "success"]);
    let archived = count(
        &client,
        "delivered where lane_endpoint = endpoint and sent_to is null",
    )
    .await;
    assert_eq!(archived, 2);
}

#[tokio::test]
async fn one_that_fails_is_retried_alone_and_dies_alone() {
    let database = database().await;
    let client = database.connect().await;
    let good = Receiver::start(|_| Reply::status(200)).unwrap();
    let bad = Receiver::start(|_| Reply::status(503)).unwrap();
    let mut failing = endpoint("bad", &bad.url("/"));
    failing.retry.max_attempts = 3;
    let endpoints = vec![endpoint("good", &good.url("/")), failing];
    insert(&client, "t", 20).await;
    let summary = until_empty(to_all(&database.url, endpoints, Order::None)).await;
    assert_eq!(summary.delivered, 20);
    assert_eq!(good.count(), 20);
    eventually("all are dead", SOON, async || {
        let endpoints = vec![
            endpoint("good", &good.url("/")),
            Endpoint {
                retry: outbox_relay::retry::Policy {
                    max_attempts: 3,
                    ..endpoint("bad", "http://127.0.0.1:9/").retry
                },
                ..endpoint("bad", &bad.url("/"))
            },
        ];
        until_empty(to_all(&database.url, endpoints, Order::None)).await;
        count(&client, "messages").await == 0
    })
    .await;
    assert_eq!((good.count(), bad.count()), (20, 60));
    let dead = format!(
        "dead_letters where endpoint = 'bad' and lane_endpoint = 'bad' and reason = '{}' and attempts = 3",
        Reason::Attempts
    );
    assert_eq!(count(&client, &dead).await, 20);
    let mut tried = keys(&bad);
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 20, "a key stays the same over all attempts");
}

#[tokio::test]
async fn a_dead_head_holds_its_key_at_its_endpoint_only() {
    let database = database().await;
    let client = database.connect().await;
    let good = Receiver::start(|_| Reply::status(200)).unwrap();
    let picky = Receiver::start(|request| match &*request.body {
        b"1" => Reply::status(422),
        _ => Reply::status(200),
    })
    .unwrap();
    for n in 1..=3 {
        insert_one(&client, "key, payload", &format!("'k', '{n}'")).await;
    }
    let endpoints = vec![
        endpoint("good", &good.url("/")),
        endpoint("picky", &picky.url("/")),
    ];
    let relay = to_all(&database.url, endpoints, Order::Key(OnDead::Hold));
    let summary = until_empty(relay).await;
    assert_eq!((summary.delivered, summary.dead), (3, 1));
    let bodies = |receiver: &Receiver| -> Vec<String> {
        let requests = receiver.requests();
        let body = |request: &Request| String::from_utf8(request.body.to_vec()).unwrap();
        requests.iter().map(body).collect()
    };
    assert_eq!(bodies(&good), ["1", "2", "3"]);
    assert_eq!(bodies(&picky), ["1"]);
    assert_eq!(count(&client, "messages where endpoint = 'picky'").await, 2);
    let held = "held_keys where lane_endpoint = 'picky' and endpoint = 'picky' and key = 'k'";
    assert_eq!(count(&client, held).await, 1);
}

#[tokio::test]
async fn an_endpoint_that_is_paused_stops_no_other() {
    let database = database().await;
    let client = database.connect().await;
    let good = Receiver::start(|_| Reply::status(200)).unwrap();
    let gone = Receiver::start(|_| Reply::status(410)).unwrap();
    let endpoints = || {
        vec![
            endpoint("good", &good.url("/")),
            endpoint("gone", &gone.url("/")),
        ]
    };
    insert(&client, "t", 1).await;
    let running = start(to_all(&database.url, endpoints(), Order::None));
    let paused = "attempts where outcome = '".to_owned() + Class::Gone.as_str() + "'";
    eventually("it is paused", SOON, async || {
        count(&client, &paused).await == 1
    })
    .await;
    insert(&client, "t", 500).await;
    good.wait_for(501, SOON).await.unwrap();
    eventually("what is left is of the paused one", SOON, async || {
        count(&client, "messages where endpoint = 'gone'").await == 501
            && count(&client, "messages").await == 501
    })
    .await;
    running.stop().await;
    assert_eq!(gone.count(), 1);
}

/// While nobody can take anything the rows stay what they are: the table does not grow.
#[tokio::test]
async fn a_backlog_is_not_multiplied_before_somebody_can_take_it() {
    let database = database().await;
    let client = database.connect().await;
    let slow = Receiver::start(|_| Reply::status(200).after(Duration::from_secs(20))).unwrap();
    insert(&client, "t", 3000).await;
    let endpoints = ["a", "b"].map(|name| Endpoint {
        concurrency: 4,
        ..endpoint(name, &slow.url("/"))
    });
    let mut relay = to_all(&database.url, endpoints.into(), Order::None);
    relay.config.grace = Duration::ZERO;
    let running = start(relay);
    slow.wait_for(8, SOON).await.unwrap();
    // The relay has looked around some more.
    let beats = async || count(&client, "relays where beat > 2").await == 1;
    eventually("it has beaten", SOON, beats).await;
    let rows = count(&client, "messages").await;
    assert!(rows < 3100, "{rows}");
    running.stop().await;
}

#[tokio::test]
async fn two_relays_expand_and_deliver_ten_thousand_once_each_and_in_order() {
    let database = database().await;
    let client = database.connect().await;
    let receivers = [(); 2].map(|()| Receiver::start(|_| Reply::status(200)).unwrap());
    let endpoints = || {
        ["a", "b"]
            .iter()
            .zip(&receivers)
            .map(|(name, receiver)| endpoint(name, &receiver.url("/")))
            .collect::<Vec<_>>()
    };
    let rows = "insert into outbox.messages (topic, key, payload)
                select 't', 'k' || n % 100, to_json(n) from generate_series(1, 5000) n";
    client.batch_execute(rows).await.unwrap();
    let order = Order::Key(OnDead::Hold);
    let relays = [(); 2].map(|()| start(to_all(&database.url, endpoints(), order)));
    all_settled(&client, Duration::from_secs(60)).await;
    for relay in relays {
        relay.stop().await;
    }
    assert_nothing_left(&client).await;
    for receiver in &receivers {
        let mut last = std::collections::HashMap::new();
        let requests = receiver.requests();
        assert_eq!(requests.len(), 5000);
        for request in &requests {
            let n: u32 = serde_json::from_slice(&request.body).unwrap();
            let before = last.insert(n % 100, n);
            assert!(
                before.is_none_or(|before| before < n),
                "{n} after {before:?}"
            );
        }
    }
}
