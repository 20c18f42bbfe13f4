//! Replay: what comes back, as what, and in which place.
use outbox_relay::{
    message::{Lane, Reason, Settlement},
    store::{Claim, Mandate, Records, Settle},
};
use uuid::Uuid;

use super::{bury, deliver, jobs, told};
use crate::{
    outbox::{Outbox, take, take_in_order, verdict},
    support::rows::mandate,
};

#[tokio::test]
async fn a_dead_letter_begins_afresh_as_the_same_message() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let insert = "insert into outbox.messages (topic, key, type, payload, headers, created_at, expires_at, attempts, lost, throttled)
                  values ('t', 'k', 'made', '{\"n\": 1.50}', '{\"X\": \"1\"}', now() - interval '9 days', now() + interval '1 hour', 4, 1, 2)
                  returning id";
    let id: Uuid = outbox.one(insert, &[]).await;
    bury(&outbox, &me, false).await;
    let sick = "update outbox.endpoints set failures = 7, breaker = 'open', breaker_until = now() + interval '1 hour' where endpoint = 'e'";
    outbox.run(sick).await;
    let health = "select e::text from outbox.endpoints e";
    let before: Vec<String> = outbox.all(health, &[]).await;

    let answer = outbox
        .store
        .replay(id, None, false, false, mandate("fixed", "ann"));
    assert_eq!(answer.await.unwrap(), (vec![id], 0));
    let same = "messages where attempts = 0 and lost = 0 and throttled = 0 and generation = 1 and last_error is null
                 and topic = 't' and endpoint = '' and sent_to = 'e' and key = 'k' and type = 'made'
                 and payload::text = '{\"n\": 1.50}' and headers = '{\"X\": \"1\"}' and created_at < now() - interval '8 days'
                 and expires_at > now() and due_at <= now() and replayed_at = due_at and seq = 2";
    assert_eq!(outbox.count(&format!("outbox.{same}")).await, 1);
    assert_eq!(outbox.count("outbox.dead_letters").await, 0);
    assert_eq!(
        outbox.all::<String>(health, &[]).await,
        before,
        "its health is not touched"
    );
    assert_eq!(
        told(&outbox, id).await,
        [("replayed".into(), "ann".into(), Some("fixed".into()))]
    );

    // Once more: it is pending already, and nothing happens.
    let again = outbox
        .store
        .replay(id, None, false, false, Mandate::default());
    assert_eq!(again.await.unwrap(), (vec![], 1), "it is pending already");
    assert_eq!(outbox.count(&format!("outbox.{same}")).await, 1);
}

#[tokio::test]
async fn a_late_answer_does_not_remove_what_was_replayed() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let lease = outbox.lease(&me, &take(1)).await;
    let id = lease.ids[0];
    let late = outbox
        .of_now(&[verdict(lease.id, id, Settlement::Delivered)])
        .await;
    let dead = Settle {
        hold: true,
        ..verdict(lease.id, id, Settlement::Dead(Reason::Rejected))
    };
    outbox.settle(&me, &[dead]).await;
    // The head of its key: even its seq is the same.
    outbox
        .store
        .replay(id, None, false, false, Mandate::default())
        .await
        .unwrap();
    assert_eq!(
        outbox
            .all::<i64>("select seq from outbox.messages", &[])
            .await,
        [1]
    );
    assert!(outbox.archive(&me, &late).await.settled.is_empty());
    assert_eq!(outbox.count("outbox.messages").await, 1);
}

#[tokio::test]
async fn a_dead_head_that_holds_its_key_goes_back_to_its_place() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for _ in 0..3 {
        outbox.insert("'k', null::timestamptz").await;
    }
    let claim = Claim {
        hold: true,
        chain: 1,
        ..take_in_order(1)
    };
    let lease = outbox.lease(&me, &claim).await;
    let dead = Settle {
        hold: true,
        ..verdict(lease.id, lease.ids[0], Settlement::Dead(Reason::Rejected))
    };
    outbox.settle(&me, &[dead]).await;
    assert!(
        outbox.claim(&me, &take_in_order(10)).await.lease.is_none(),
        "its key is held"
    );

    outbox
        .store
        .replay(lease.ids[0], None, false, false, Mandate::default())
        .await
        .unwrap();
    assert_eq!(outbox.count("outbox.held_keys").await, 0);
    let next = outbox.lease(&me, &claim).await;
    assert_eq!(next.ids, lease.ids, "it comes first");
    assert!(
        outbox.claim(&me, &take_in_order(10)).await.lease.is_none(),
        "the others wait for it"
    );
}

#[tokio::test]
async fn what_died_and_let_its_key_go_on_comes_after_what_is_there_in_the_old_order() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(outbox.insert("'k', null::timestamptz").await);
    }
    bury(&outbox, &me, false).await;
    let there = outbox.insert("'k', null::timestamptz").await;
    let job = outbox
        .store
        .start_job(jobs::REPLAY, &jobs::all(), Mandate::default(), false)
        .await
        .unwrap();
    jobs::finish(&outbox, job, 100).await;
    let order: Vec<Uuid> = outbox
        .all("select id from outbox.messages order by seq", &[])
        .await;
    dead.insert(0, there);
    assert_eq!(order, dead);
}

#[tokio::test]
async fn what_was_delivered_is_sent_again_from_the_archive_as_often_as_one_likes() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let id = deliver(&outbox, &me).await.ids[0];
    for generation in 1..4 {
        let replayed = outbox
            .store
            .replay(id, None, true, false, Mandate::default());
        assert_eq!(replayed.await.unwrap(), (vec![id], 0));
        let twice = outbox
            .store
            .replay(id, None, true, false, Mandate::default());
        assert_eq!(twice.await.unwrap(), (vec![], 1), "it is pending already");
        let of: i32 = outbox
            .one(
                "select generation from outbox.messages where sent_to = 'e'",
                &[],
            )
            .await;
        assert_eq!(of, generation);
        deliver(&outbox, &me).await;
    }
    assert_eq!(outbox.count("outbox.delivered").await, 4);
    assert_eq!(outbox.count("outbox.messages").await, 0);
}

#[tokio::test]
async fn under_a_new_key_it_is_another_message_and_both_tell_of_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let old = bury(&outbox, &me, true).await.ids[0];
    let (ids, pending) = outbox
        .store
        .replay(old, None, false, true, mandate("again", "ann"))
        .await
        .unwrap();
    assert_eq!((ids.len(), pending), (1, 0));
    assert_ne!(ids[0], old);
    assert_eq!(
        outbox.seqs(&ids).await,
        [1],
        "it has the place of the head that held the key"
    );
    assert_eq!(outbox.count("outbox.held_keys").await, 0);
    assert_eq!(outbox.count("outbox.dead_letters").await, 0);
    let link = "select error from outbox.attempts where id = $1 and outcome = 'replayed'";
    assert_eq!(
        outbox.one::<String>(link, &[&old]).await,
        format!("as {}", ids[0])
    );
    assert_eq!(
        outbox.one::<String>(link, &[&ids[0]]).await,
        format!("of {old}")
    );
    assert_eq!(deliver(&outbox, &me).await.ids, ids);
}

#[tokio::test]
async fn what_expired_does_not_expire_again_at_once() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let insert = "insert into outbox.messages (topic, expires_at) values ('t', now() - interval '1 hour') returning id";
    let id: Uuid = outbox.one(insert, &[]).await;
    bury(&outbox, &me, false).await;
    outbox
        .store
        .replay(id, None, false, false, Mandate::default())
        .await
        .unwrap();
    assert_eq!(
        outbox
            .count("outbox.messages where expires_at is null")
            .await,
        1
    );
}

#[tokio::test]
async fn of_several_endpoints_one_can_be_meant() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let id = outbox.insert("'k', null::timestamptz").await;
    let lanes = "insert into outbox.lanes (topic, endpoint) values ('t', 'a'), ('t', 'b');
                 insert into outbox.endpoints (endpoint) values ('a'), ('b');
                 insert into outbox.messages (id, topic, endpoint, key) select id, topic, e, key from outbox.messages, unnest('{a,b}'::text[]) e;
                 delete from outbox.messages where endpoint = ''";
    outbox.run(lanes).await;
    for endpoint in ["a", "b"] {
        let lane = Lane {
            topic: "t".into(),
            endpoint: endpoint.into(),
        };
        let claim = Claim {
            lane: &lane,
            endpoint,
            ..take(1)
        };
        let lease = outbox.lease(&me, &claim).await;
        let dead = Settle {
            endpoint: endpoint.into(),
            ..verdict(lease.id, id, Settlement::Dead(Reason::Rejected))
        };
        outbox
            .store
            .settle(
                &me,
                "a relay",
                endpoint,
                &seq_of(&outbox, vec![dead], endpoint).await,
                Records::ATTEMPTS,
            )
            .await
            .unwrap();
    }
    assert_eq!(outbox.count("outbox.dead_letters").await, 2);
    let one = outbox
        .store
        .replay(id, Some("b"), false, false, Mandate::default());
    assert_eq!(one.await.unwrap(), (vec![id], 0));
    assert_eq!(
        outbox
            .all::<String>(
                "select endpoint from outbox.messages where sent_to is null",
                &[]
            )
            .await,
        ["b"]
    );
    assert_eq!(
        outbox
            .store
            .discard(id, Some("b"), Mandate::default())
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        outbox
            .store
            .discard(id, Some("a"), Mandate::default())
            .await
            .unwrap(),
        1
    );
}

/// Several rows have this id: those of one lane are meant.
async fn seq_of(outbox: &Outbox, mut settles: Vec<Settle>, endpoint: &str) -> Vec<Settle> {
    for settle in &mut settles {
        let query = "select seq from outbox.messages where id = $1 and endpoint = $2";
        settle.seq = outbox.one(query, &[&settle.id, &endpoint]).await;
    }
    settles
}

#[tokio::test]
async fn a_replay_waits_for_a_claim_and_none_is_half_seen() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let id = bury(&outbox, &me, true).await.ids[0];
    let other = outbox.database.connect().await;
    other
        .batch_execute("begin; select from outbox.lanes where topic = 't' for update")
        .await
        .unwrap();
    let store = outbox.store.clone();
    let mut replay = tokio::task::JoinSet::new();
    replay.spawn(async move {
        store
            .replay(id, None, false, false, Mandate::default())
            .await
    });
    outbox.blocked("outbox.replay").await;
    other.batch_execute("commit").await.unwrap();
    assert_eq!(
        replay.join_next().await.unwrap().unwrap().unwrap(),
        (vec![id], 0)
    );
}

#[tokio::test]
async fn a_replay_leaves_what_is_known_of_its_endpoint_as_it_is() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let id = bury(&outbox, &me, true).await.ids[0];
    let state = "update outbox.endpoints set breaker = 'open', breaker_until = now() + interval '1 hour', openings = 2, successes = 3,
                        failures = 7, not_before = now() + interval '1 minute'";
    outbox.run(state).await;
    let known = async || {
        let row = "select e::text from outbox.endpoints e";
        outbox.one::<String>(row, &[]).await
    };
    let before = known().await;
    let replayed = outbox
        .store
        .replay(id, None, false, false, Mandate::default())
        .await;
    assert_eq!(replayed.unwrap(), (vec![id], 0));
    assert_eq!(known().await, before);
}

#[tokio::test]
async fn what_the_application_inserted_again_is_not_overwritten() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let id = outbox.insert("'k', null::timestamptz").await;
    bury(&outbox, &me, false).await;
    outbox
        .client
        .execute(
            "insert into outbox.messages (id, topic, payload) values ($1, 't', '\"new\"')",
            &[&id],
        )
        .await
        .unwrap();
    let replayed = outbox
        .store
        .replay(id, None, false, false, Mandate::default());
    assert_eq!(replayed.await.unwrap(), (vec![], 1));
    assert_eq!(
        outbox.count("outbox.dead_letters").await,
        1,
        "and the dead letter stays"
    );
    assert_eq!(
        outbox
            .all::<String>("select payload::text from outbox.messages", &[])
            .await,
        ["\"new\""]
    );
    // As another message it can be.
    let replayed = outbox
        .store
        .replay(id, None, false, true, Mandate::default())
        .await
        .unwrap();
    assert_eq!((replayed.0.len(), replayed.1), (1, 0));
    assert_eq!(outbox.count("outbox.dead_letters").await, 0);
    assert_eq!(outbox.count("outbox.messages").await, 2);
}
