//! What operators see: why a message is not delivered, its whole life, lists, and the history.
use std::collections::HashSet;

use outbox_relay::{
    lab::receiver::Reply,
    message::{Reason, Settlement},
    store::{Claim, Mandate, Settle, Way},
};
use serde_json::Value;
use uuid::Uuid;

use super::deliver;
use crate::{
    outbox::{LANE, Outbox, take, take_in_order, verdict},
    support::{
        eventually,
        rows::{SOON, all_settled, count, insert_one, mandate},
        scene::Scene,
    },
};

/// The one state and sentence of a message.
async fn why(outbox: &Outbox, id: Uuid) -> (String, String) {
    let mut why = outbox.store.why(id).await.unwrap();
    assert_eq!(why.len(), 1, "{why:?}");
    let why = why.remove(0);
    (why.state, why.why)
}

/// Expects a state and a part of the sentence.
async fn is(outbox: &Outbox, id: Uuid, state: &str, part: &str) {
    let (is, says) = why(outbox, id).await;
    assert!(
        is == state && says.contains(part),
        "{is}: {says}, not {state}: {part}"
    );
}

#[tokio::test]
async fn it_is_said_why_a_message_is_not_delivered() {
    let outbox = Outbox::new().await;
    let id = outbox.insert("null, null::timestamptz").await;
    assert!(outbox.store.why(Uuid::nil()).await.unwrap().is_empty());
    is(&outbox, id, "no_relay", "no relay is running").await;

    let me = outbox.relay().await;
    outbox
        .store
        .add_lanes(&[Way {
            lane: LANE.clone(),
            leads_to: vec!["e".into()],
            in_order: true,
        }])
        .await
        .unwrap();
    is(&outbox, id, "due", "as soon as there is room").await;
    let younger = outbox.insert("null, null::timestamptz").await;
    is(&outbox, younger, "due", "1 older").await;

    outbox
        .store
        .pause("e", mandate("moving house", "ann"))
        .await
        .unwrap();
    is(
        &outbox,
        id,
        "paused",
        "endpoint e was paused by ann 00:00:0",
    )
    .await;
    is(&outbox, id, "paused", ": moving house").await;
    outbox.store.resume("e").await.unwrap();
    for (set, state, part) in [
        (
            "breaker = 'open', breaker_until = now() + interval '90 seconds'",
            "open",
            "the breaker of endpoint e is open for another 00:01:",
        ),
        ("breaker = 'half_open'", "open", "to see how it does"),
        (
            "not_before = now() + interval '90 seconds'",
            "not_before",
            "asked to be left alone for another 00:01:",
        ),
        (
            "tokens = 0.2, tokens_at = now()",
            "throttled",
            "the rate limit of endpoint e is used up",
        ),
    ] {
        outbox
            .run(&format!("update outbox.endpoints set {set}"))
            .await;
        is(&outbox, id, state, part).await;
        outbox.run("update outbox.endpoints set breaker = 'closed', breaker_until = null, not_before = null, tokens = null").await;
    }

    outbox
        .run("update outbox.relays set unrouted_topics = '{t}', unrouted_endpoints = '{\"\"}'")
        .await;
    is(&outbox, id, "no_route", "no route for topic t").await;
    outbox
        .run("update outbox.relays set unrouted_topics = '{}', unrouted_endpoints = '{}'")
        .await;

    let later = outbox.insert("null, now() + interval '1 hour'").await;
    is(&outbox, later, "scheduled", "it is scheduled for 20").await;
    outbox.run(&format!("update outbox.messages set attempts = 2, last_error = 'status 503' where id = '{later}'")).await;
    is(&outbox, later, "retry", "the next attempt is in 00:59:5").await;
    is(
        &outbox,
        later,
        "retry",
        "2 made so far, the last one: status 503",
    )
    .await;

    let lease = outbox.lease(&me, &take(1)).await;
    is(
        &outbox,
        lease.ids[0],
        "leased",
        "leased by relay a relay for 00:00:0",
    )
    .await;
    outbox
        .run("update outbox.relays set beat_at = now() - interval '1 minute'")
        .await;
    is(
        &outbox,
        lease.ids[0],
        "leased",
        "has not been heard of for 00:01:0",
    )
    .await;
    outbox.run("update outbox.relays set beat_at = now()").await;

    // Who keeps a row that is needed, for longer than a claim does.
    let other = outbox.database.connect().await;
    other
        .batch_execute(
            "set application_name = 'backup'; begin; select from outbox.lanes for update",
        )
        .await
        .unwrap();
    let locked = async || why(&outbox, younger).await.0 == "locked";
    eventually("that is noticed", SOON, locked).await;
    is(
        &outbox,
        younger,
        "locked",
        "the row of its lane is locked by process ",
    )
    .await;
    is(
        &outbox,
        younger,
        "locked",
        "(backup, user postgres) for 00:00:0",
    )
    .await;
    other.batch_execute("rollback").await.unwrap();
    is(&outbox, younger, "due", "").await;
}

#[tokio::test]
async fn it_is_said_what_a_key_waits_for() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .store
        .add_lanes(&[Way {
            lane: LANE.clone(),
            leads_to: vec!["e".into()],
            in_order: true,
        }])
        .await
        .unwrap();
    let head = outbox.insert("'k', null::timestamptz").await;
    let next = outbox.insert("'k', null::timestamptz").await;
    is(&outbox, head, "due", "").await;
    is(
        &outbox,
        next,
        "behind",
        &format!("behind message {head} of the same key, and of that: it is due"),
    )
    .await;
    let claim = Claim {
        hold: true,
        chain: 1,
        ..take_in_order(1)
    };
    let lease = outbox.lease(&me, &claim).await;
    is(&outbox, next, "behind", "leased by relay a relay").await;
    let dead = Settle {
        hold: true,
        ..verdict(lease.id, head, Settlement::Dead(Reason::Rejected))
    };
    outbox.settle(&me, &[dead]).await;
    is(
        &outbox,
        next,
        "held",
        &format!("its key is held by message {head}, which is dead (rejected)"),
    )
    .await;
    is(&outbox, head, "dead", "(rejected) after 1 attempts, the last one: 422: said the receiver; what follows it under its key waits for it").await;
    outbox
        .store
        .discard(head, None, mandate("no use", "ann"))
        .await
        .unwrap();
    is(&outbox, head, "discarded", "by ann: no use").await;
    is(&outbox, next, "due", "").await;
    let expired = outbox.insert("null, null::timestamptz").await;
    outbox.run(&format!("update outbox.messages set expires_at = now() - interval '1 second' where id = '{expired}'")).await;
    is(&outbox, expired, "expired", "about to be a dead letter").await;
    deliver(&outbox, &me).await;
    is(&outbox, next, "delivered", "it was delivered 00:00:0").await;
    // The history may be kept for less time than the payload, or not at all.
    outbox.run("delete from outbox.attempts").await;
    is(&outbox, next, "delivered", "it was delivered 00:00:0").await;
}

#[tokio::test]
async fn a_relay_writes_down_where_its_lanes_lead() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let store = scene.database.store();
    store.add_endpoints(&["shop"]).await.unwrap();
    store.pause("shop", mandate("closed", "ann")).await.unwrap();
    let id = insert_one(&scene.client, "payload", "'1'").await;
    let relay = scene.start();
    eventually("it knows that the endpoint is paused", SOON, async || {
        store.why(id).await.unwrap()[0].state == "paused"
    })
    .await;
    let why = store.why(id).await.unwrap();
    assert_eq!(why[0].endpoint, "shop");
    store.resume("shop").await.unwrap();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
}

#[tokio::test]
async fn what_was_too_old_is_young_again_and_keeps_its_key() {
    let scene =
        Scene::new(|request| Reply::status(if request.number <= 1 { 503 } else { 200 })).await;
    let id = scene
        .deliver("payload, created_at", "'1', now() - interval '9 days'")
        .await;
    assert_eq!(scene.dead().await, ("max_age".into(), Some(503), 1));
    let store = scene.database.store();
    assert_eq!(
        store
            .replay(id, None, false, Mandate::default())
            .await
            .unwrap(),
        (vec![id], 0)
    );
    let relay = scene.start();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
    assert_eq!(
        count(&scene.client, "delivered where generation = 1").await,
        1
    );
    let requests = scene.receiver.requests();
    let keys: HashSet<&str> = requests
        .iter()
        .map(|request| request.header("idempotency-key").unwrap())
        .collect();
    assert_eq!((requests.len(), keys.len()), (2, 1));
    let life: Value = serde_json::from_str(store.show(id).await.unwrap().unwrap().get()).unwrap();
    let outcomes: Vec<&str> = life["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["unavailable", "replayed", "success"]);
    assert_eq!(life["why"][0]["state"], "delivered");
}

#[tokio::test]
async fn a_payload_is_shown_as_it_was_written() {
    let outbox = Outbox::new().await;
    let payload = "{\"b\": 1.50, \"a\": 12345678901234567890123,  \"a\": 2}";
    let insert = format!(
        "insert into outbox.messages (topic, payload) values ('t', '{payload}') returning id"
    );
    let id: Uuid = outbox.one(&insert, &[]).await;
    let life = outbox.store.show(id).await.unwrap().unwrap();
    assert!(life.get().contains(payload), "{life}");
    assert!(outbox.store.show(Uuid::nil()).await.unwrap().is_none());
}
