//! Batches within what holds for every delivery: the order of a key, slots, the breaker, expiry.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_relay::{
    lab::receiver::Reply,
    limit::{Breaker, Limits, Rate},
    route::{OnDead, Order, Pattern, Route, Routes},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;

use super::{batched, items, multi_status, number, sizes};
use crate::support::{
    eventually,
    relay::{start, until_empty},
    rows::{SOON, all_settled, count, insert, one},
    scene::Scene,
};

// === order ===

/// Two relays, a receiver that refuses single messages, whole batches, or gives no answer.
#[tokio::test]
async fn a_batch_has_no_key_twice_and_each_key_keeps_its_order() {
    const KEYS: usize = 12;
    const EACH: usize = 12;
    struct Ledger {
        dice: StdRng,
        accepted: BTreeMap<String, Vec<u64>>,
        wrong: Vec<String>,
        largest: usize,
    }
    let ledger = Arc::new(Mutex::new(Ledger {
        dice: StdRng::seed_from_u64(7),
        accepted: BTreeMap::new(),
        wrong: Vec::new(),
        largest: 0,
    }));
    let written = ledger.clone();
    let scene = Scene::new(move |request| {
        let mut ledger = written.lock().unwrap();
        let items = items(&request.body);
        let keys: BTreeSet<_> = items.iter().map(|item| item["key"].to_string()).collect();
        if keys.len() < items.len() {
            ledger.wrong.push(format!("a key twice in {items:?}"));
        }
        ledger.largest = ledger.largest.max(items.len());
        match ledger.dice.random_range(0..10) {
            0 => return Reply::status(503),
            1 => return Reply::hang_up(),
            _ => {}
        }
        multi_status(request, |item| {
            if ledger.dice.random_range(0..4) == 0 {
                return json!({ "status": 503 });
            }
            let key = item["key"].as_str().unwrap().to_owned();
            let accepted = ledger.accepted.entry(key.clone()).or_default();
            accepted.push(number(item));
            let wrong =
                (accepted.len() as u64 != number(item)).then(|| format!("{key}: {accepted:?}"));
            ledger.wrong.extend(wrong);
            json!({ "status": 200 })
        })
    })
    .await;
    let insert = format!(
        "insert into outbox.messages (topic, key, payload)
         select 't', 'k' || k, json_build_object('n', n)
           from generate_series(1, {EACH}) n, generate_series(1, {KEYS}) k order by n, k"
    );
    scene.client.batch_execute(&insert).await.unwrap();
    let ordered = || {
        let mut relay = batched(&scene, 5);
        relay.routes = Routes::new(vec![Route {
            topic: Pattern::parse("**").unwrap(),
            to: vec!["shop".into()],
            order: Order::Key(OnDead::Hold),
        }]);
        relay
    };
    let relays = [start(ordered()), start(ordered())];
    all_settled(&scene.client, Duration::from_secs(60)).await;
    for relay in relays {
        relay.stop().await;
    }
    let ledger = ledger.lock().unwrap();
    assert!(ledger.wrong.is_empty(), "{:#?}", ledger.wrong);
    assert_eq!(ledger.accepted.len(), KEYS);
    assert!(
        ledger
            .accepted
            .values()
            .all(|numbers| numbers.len() == EACH)
    );
    assert_eq!(
        ledger.largest, 5,
        "what is sent together is of several keys"
    );
}

// === limits ===

#[tokio::test]
async fn a_slot_is_a_request_and_the_messages_in_it_fill_it() {
    let scene = Scene::new(|_| Reply::never()).await;
    insert(&scene.client, "t", 200).await;
    let mut relay = batched(&scene, 10);
    relay.endpoints[0].concurrency = 2;
    relay.config.grace = Duration::ZERO;
    let relay = start(relay);
    scene.receiver.wait_for(2, SOON).await.unwrap();
    // Two requests of ten, and three times as many messages that wait for a slot.
    let leased = "select coalesce(sum(cardinality(ids)), 0)::bigint from outbox.leases";
    eventually("the slots are full", SOON, async || {
        one::<i64>(&scene.client, leased).await == 80
    })
    .await;
    assert_eq!((scene.receiver.count(), sizes(&scene)), (2, vec![10, 10]));
    relay.stop().await;
    let aborted = "attempts where outcome = 'aborted' and settlement = 'retry'";
    assert_eq!(
        count(&scene.client, aborted).await,
        20,
        "each has its row of history"
    );
    assert_eq!(
        count(&scene.client, "messages where attempts = 0").await,
        180
    );
    assert_eq!(count(&scene.client, "leases").await, 0);
}

#[tokio::test]
async fn a_breaker_counts_a_request_once_whatever_it_holds() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    insert(&scene.client, "t", 30).await;
    let mut relay = batched(&scene, 100);
    relay.endpoints[0].limits = Limits {
        breaker: Some(Breaker {
            minimum: 3,
            window: Duration::from_secs(3600),
            ..Breaker::default()
        }),
        ..Limits::default()
    };
    let running = start(relay);
    all_settled(&scene.client, SOON).await;
    let failures = "select failures from outbox.endpoints";
    eventually("the failure is told of", SOON, async || {
        one::<f64>(&scene.client, failures).await > 0.5
    })
    .await;
    running.stop().await;
    assert!(one::<f64>(&scene.client, failures).await < 1.5);
    assert_eq!(
        one::<String>(&scene.client, "select breaker from outbox.endpoints").await,
        "closed"
    );
}

#[tokio::test]
async fn what_has_expired_is_dead_without_being_sent() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let insert = "insert into outbox.messages (topic, payload, expires_at) values
                  ('t', '{\"n\": 1}', null), ('t', '{\"n\": 2}', now()), ('t', '{\"n\": 3}', 'infinity')";
    scene.client.batch_execute(insert).await.unwrap();
    let summary = until_empty(batched(&scene, 100)).await;
    assert_eq!((summary.delivered, summary.dead), (2, 1));
    assert_eq!(sizes(&scene), [2]);
    assert_eq!(scene.dead().await, ("expired".into(), None, 0));
}

// === the rate ===

#[tokio::test]
async fn what_is_sent_once_more_after_a_refused_batch_counts_for_the_rate() {
    let scene = Scene::new(|request| match items(&request.body).len() {
        1 => Reply::status(200),
        _ => Reply::status(422),
    })
    .await;
    insert(&scene.client, "t", 80).await;
    let mut relay = batched(&scene, 10);
    let rate = Some(Rate {
        per_second: 40.0,
        burst: 40.0,
    });
    relay.endpoints[0].limits = Limits {
        rate,
        ..relay.endpoints[0].limits.clone()
    };
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    let requests = scene.receiver.requests();
    let sizes: Vec<usize> = requests
        .iter()
        .map(|request| items(&request.body).len())
        .collect();
    let alone = sizes.iter().filter(|size| **size == 1).count();
    let together: usize = sizes.iter().filter(|size| **size > 1).sum();
    assert_eq!(alone, 80, "each alone, once");
    // A claim that brings a single message, when a token is all there is, makes no batch.
    assert!(
        (70..=80).contains(&together),
        "and before that in a batch: {sizes:?}"
    );
    // Two full buckets, since what a claim brought is sent to its end; then forty a second.
    let seconds = requests.last().unwrap().at.duration_since(requests[0].at);
    assert!(seconds >= Duration::from_millis(1800), "{seconds:?}");
}

// === the key ===

/// Fan-out gives a new key to what was never sent.
#[tokio::test]
async fn what_was_in_a_refused_batch_and_not_sent_again_stays_with_its_endpoint_and_key() {
    let scene = Scene::new(|request| match items(&request.body).len() {
        1 => Reply::status(200).after(Duration::from_millis(500)),
        _ => Reply::status(422),
    })
    .await;
    insert(&scene.client, "t", 3).await;
    let relay = start(batched(&scene, 3));
    scene.receiver.wait_for(2, SOON).await.unwrap();
    relay.stop().await;
    assert_eq!(count(&scene.client, "delivered").await, 1);
    let tried = "messages where sent_to = 'shop' and attempts = 0";
    assert_eq!(count(&scene.client, tried).await, 2);
    assert_eq!(count(&scene.client, "leases").await, 0);
}
