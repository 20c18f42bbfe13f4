//! What operators see: why a message is not delivered, its whole life, lists, and the history.
use std::{collections::HashSet, time::Duration};

use outbox_relay::{
    lab::receiver::Reply,
    message::{Lane, Reason, Settlement},
    store::{Claim, ClaimState, Filter, Mandate, Settle, Shared, State, Way},
};
use serde_json::Value;
use uuid::Uuid;

use super::{bury, deliver};
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
    outbox.store.resume("e", Mandate::default()).await.unwrap();
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

/// Whoever keeps a row that is needed for longer than a claim does is named.
#[tokio::test]
async fn it_is_said_who_keeps_the_row_of_a_message_or_of_its_endpoint() {
    let outbox = Outbox::new().await;
    outbox.relay().await;
    let lead = "update outbox.lanes set leads_to = '{e}'";
    outbox.run(lead).await;
    let id = outbox.insert("null, null::timestamptz").await;
    let other = outbox.database.connect().await;
    other
        .batch_execute("set application_name = 'backup'")
        .await
        .unwrap();
    for (row, what) in [
        ("outbox.endpoints where endpoint = 'e'", "endpoint e"),
        ("outbox.messages", "the message"),
    ] {
        is(&outbox, id, "due", "").await;
        let lock = format!("begin; select from {row} for update");
        other.batch_execute(&lock).await.unwrap();
        eventually("that is noticed", SOON, async || {
            why(&outbox, id).await.0 == "locked"
        })
        .await;
        let says = format!("the row of {what} is locked by process ");
        is(&outbox, id, "locked", &says).await;
        is(&outbox, id, "locked", "(backup, user postgres) for 00:00:0").await;
        other.batch_execute("rollback").await.unwrap();
    }
    is(&outbox, id, "due", "").await;
}

#[tokio::test]
async fn it_is_said_that_as_many_are_on_their_way_as_may_be() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.run("update outbox.lanes set leads_to = '{e}'").await;
    outbox.insert("null, null::timestamptz").await;
    let next = outbox.insert("null, null::timestamptz").await;
    let claim = Claim {
        shared: Shared {
            max_in_flight: Some(1),
            ..Shared::default()
        },
        ..take(1)
    };
    let lease = outbox.lease(&me, &claim).await;
    is(&outbox, next, "due", "").await;
    for _ in 0..3 {
        assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Saturated);
    }
    let says = "endpoint e has as many messages on their way as it may have from all relays together: 1 (max_in_flight)";
    is(&outbox, next, "saturated", says).await;
    outbox.settle_all(&me, &lease, Settlement::Delivered).await;
    // Nothing finds it so any more.
    outbox
        .run("update outbox.endpoints set saturated_at = now() - interval '3 seconds'")
        .await;
    is(&outbox, next, "due", "").await;
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
    store
        .add_endpoints(&[("shop", Duration::from_secs(10))])
        .await
        .unwrap();
    store.pause("shop", mandate("closed", "ann")).await.unwrap();
    let id = insert_one(&scene.client, "payload", "'1'").await;
    let relay = scene.start();
    eventually("it knows that the endpoint is paused", SOON, async || {
        store.why(id).await.unwrap()[0].state == "paused"
    })
    .await;
    let why = store.why(id).await.unwrap();
    assert_eq!(why[0].endpoint, "shop");
    store.resume("shop", Mandate::default()).await.unwrap();
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
            .replay(id, None, false, false, Mandate::default())
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

#[tokio::test]
async fn what_waits_for_each_other_in_several_lanes_is_said_without_end() {
    let outbox = Outbox::new().await;
    outbox.relay().await;
    let way = |endpoint: &str| Way {
        lane: Lane {
            topic: "t".into(),
            endpoint: endpoint.into(),
        },
        leads_to: vec!["e".into(), "f".into()],
        in_order: true,
    };
    let ways = ["", "e", "f"].map(way);
    outbox.store.add_lanes(&ways).await.unwrap();
    outbox
        .store
        .add_endpoints(&[
            ("e", Duration::from_secs(10)),
            ("f", Duration::from_secs(10)),
        ])
        .await
        .unwrap();
    // At e A is before B; at f it was replayed, and comes after it.
    let rows = "insert into outbox.messages (id, topic, endpoint, key, seq, generation, due_at) overriding system value values
                ('00000000-0000-4000-8000-00000000000a', 't', 'e', 'k', 1, 0, null),
                ('00000000-0000-4000-8000-00000000000b', 't', 'e', 'k', 2, 0, null),
                ('00000000-0000-4000-8000-00000000000b', 't', 'f', 'k', 2, 0, null),
                ('00000000-0000-4000-8000-00000000000a', 't', 'f', 'k', 3, 1, now())";
    outbox.run(rows).await;
    let pause = outbox.store.pause("e", mandate("moving", "ann"));
    pause.await.unwrap();
    let [a, b] = ["a", "b"].map(|end| format!("00000000-0000-4000-8000-00000000000{end}"));
    let of = async |id: &str| -> Vec<(String, String)> {
        let why = outbox.store.why(id.parse().unwrap()).await.unwrap();
        why.into_iter().map(|why| (why.state, why.why)).collect()
    };
    let (of_a, of_b) = (of(&a).await, of(&b).await);
    let states =
        |why: &[(String, String)]| -> Vec<String> { why.iter().map(|why| why.0.clone()).collect() };
    assert_eq!(states(&of_a), ["paused", "behind"]);
    assert_eq!(states(&of_b), ["behind", "due"]);
    assert!(
        of_b[0].1.contains(&format!("behind message {a}")),
        "{of_b:?}"
    );
    assert!(
        of_b[0].1.contains("and of that: endpoint e was paused"),
        "{of_b:?}"
    );
    // Of A the row at f, not the one at e.
    assert!(
        of_a[1].1.contains(&format!("behind message {b}")),
        "{of_a:?}"
    );
    assert!(of_a[1].1.contains("and of that: it is due"), "{of_a:?}");
}

#[tokio::test]
async fn odd_rows_are_explained_too() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let insert = "insert into outbox.messages (topic, due_at, expires_at) values ('t', 'infinity', '-infinity') returning id";
    let id: Uuid = outbox.one(insert, &[]).await;
    is(
        &outbox,
        id,
        "expired",
        "it expired and is about to be a dead letter; it is scheduled for infinity",
    )
    .await;
    outbox.run("delete from outbox.messages").await;

    // A key that is held means nothing where keys have no order any more.
    let key = outbox.insert("'k', null::timestamptz").await;
    let hold = "insert into outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq) values ('t', '', 'k', 'e', gen_random_uuid(), 0)";
    outbox.run(hold).await;
    is(&outbox, key, "held", "its dead letter is gone").await;
    let way = Way {
        lane: LANE.clone(),
        leads_to: vec!["f".into()],
        in_order: false,
    };
    outbox.store.add_lanes(&[way]).await.unwrap();
    is(&outbox, key, "due", "").await;
    // It goes where its route leads now, whatever it was tried at.
    outbox.run("update outbox.messages set sent_to = 'e'").await;
    let why = outbox.store.why(key).await.unwrap();
    assert_eq!(why[0].endpoint, "f");
    let all = Filter::default();
    let listed = outbox.store.list(State::Pending, &all, None, 10);
    assert_eq!(listed.await.unwrap()[0].endpoint, "f");
    outbox.run("delete from outbox.held_keys").await;

    let old = bury(&outbox, &me, false).await.ids[0];
    let new = outbox
        .store
        .replay(old, None, false, true, mandate("again", "ann"));
    let new = new.await.unwrap().0[0];
    is(
        &outbox,
        old,
        "replayed",
        &format!("it was replayed as {new} 00:00:0"),
    )
    .await;
}

#[tokio::test]
async fn what_readers_may_ask_they_may_run() {
    let outbox = Outbox::new().await;
    outbox.insert("null, null::timestamptz").await;
    outbox.run("set role outbox_reader").await;
    for ask in [
        "outbox.list('pending')",
        "outbox.list('dead', p_error => 'x')",
        "outbox.history(p_failures => true)",
        "outbox.matching()",
        "outbox.why((select id from outbox.messages))",
        "outbox.show((select id from outbox.messages))",
    ] {
        outbox.run(&format!("select * from {ask}")).await;
    }
    for verb in [
        "outbox.replay(gen_random_uuid())",
        "outbox.start_job('discard', false)",
    ] {
        let refused = outbox.client.batch_execute(&format!("select {verb}")).await;
        assert!(refused.is_err(), "{verb}");
    }
}
