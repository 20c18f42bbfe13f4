//! What fan-out does to rows.

use std::time::Duration;

use outbox_relay::{
    message::Settlement,
    store::{ClaimState, Expand, Expanded, Floors, Mandate, Registration},
};

use tokio::task::JoinSet;

use crate::{
    outbox::{LANE, Outbox, take, verdict},
    support::rows::way,
};

/// All that can be expanded, from the bottom, to `a` and `b`; `x` is known too.
fn all() -> Expand<'static> {
    Expand {
        topic: "t",
        to: &["a", "b"],
        known: &["a", "b", "x", "e"],
        limit: 100,
        bytes: i64::MAX,
        floors: Floors::default(),
    }
}

async fn expand(outbox: &Outbox, me: &Registration, expand: &Expand<'_>) -> Expanded {
    outbox.store.expand(me, expand).await.unwrap()
}

/// `endpoint seq attempts lost sent_to` of all rows, in order.
async fn rows(outbox: &Outbox) -> Vec<String> {
    outbox
        .all(
            "select concat_ws(' ', nullif(endpoint, ''), seq, attempts, lost, sent_to) from outbox.messages order by seq, endpoint",
            &[],
        )
        .await
}

#[tokio::test]
async fn a_row_becomes_one_per_endpoint_with_all_that_it_is() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run(
            "insert into outbox.messages (topic, key, type, content_type, headers, payload, expires_at, due_at)
             values ('t', 'k', 'ty', 'application/x+json', '{\"a\": \"b\"}', '{\"n\":1.50,  \"n\":2}', 'infinity', now());
             insert into outbox.messages (topic, body) values ('t', '\\x0001ff')",
        )
        .await;
    let columns = "select (to_jsonb(m) - 'endpoint' || jsonb_build_object('payload', payload::text))::text from outbox.messages m order by seq, endpoint";
    let before: Vec<String> = outbox.all(columns, &[]).await;
    let expanded = expand(&outbox, &me, &all()).await;
    assert_eq!(expanded.seen.state, ClaimState::Claimed);
    assert_eq!(expanded.endpoints, ["a", "b"]);
    assert!(expanded.seen.dry && expanded.seen.brought);
    let after: Vec<String> = outbox.all(columns, &[]).await;
    let twice: Vec<String> = before
        .into_iter()
        .flat_map(|row| [row.clone(), row])
        .collect();
    assert_eq!(after, twice);
    assert_eq!(
        rows(&outbox).await,
        ["a 1 0 0", "b 1 0 0", "a 2 0 0", "b 2 0 0"]
    );
    assert_eq!(
        outbox
            .count("outbox.lanes where topic = 't' and endpoint in ('a', 'b')")
            .await,
        2
    );
    // Once more from the floors, and from the bottom: there is nothing.
    for floors in [expanded.seen.floors.unwrap(), Floors::default()] {
        let again = expand(&outbox, &me, &Expand { floors, ..all() }).await;
        assert_eq!(again.seen.state, ClaimState::Empty);
        assert!(again.seen.dry && !again.seen.brought && again.endpoints.is_empty());
    }
}

#[tokio::test]
async fn a_row_that_was_tried_stays_with_its_endpoint_while_anybody_knows_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run(
            "insert into outbox.messages (topic, due_at, attempts, lost, last_error, sent_to) values
                 ('t', now(), 3, 1, 'refused', 'x'), ('t', now(), 3, 1, 'refused', 'forgotten'),
                 ('t', now() + interval '1 hour', 1, 0, 'refused', 'x')",
        )
        .await;
    let expanded = expand(&outbox, &me, &all()).await;
    assert_eq!(expanded.endpoints, ["a", "b", "x"]);
    assert_eq!(
        rows(&outbox).await,
        ["x 1 3 1 x", "a 2 0 0", "b 2 0 0", "3 1 0 x"]
    );
    let errors: Vec<Option<String>> = outbox
        .all(
            "select last_error from outbox.messages where seq < 3 order by seq, endpoint",
            &[],
        )
        .await;
    assert_eq!(errors, [Some("refused".into()), None, None]);
    let next = expanded.seen.next_due.unwrap();
    assert!(
        next > Duration::from_secs(3590) && next <= Duration::from_secs(3600),
        "{next:?}"
    );
}

#[tokio::test]
async fn a_retry_and_a_lost_relay_write_down_where_a_row_was_sent() {
    let outbox = Outbox::new().await;
    let (me, other) = (outbox.relay().await, outbox.relay().await);
    outbox
        .run("insert into outbox.messages (topic) values ('t'), ('t'), ('t')")
        .await;
    let lease = outbox.lease(&me, &take(1)).await;
    let hour = Duration::from_secs(3600);
    outbox
        .settle_all(&me, &lease, Settlement::Retry(hour))
        .await;
    let lease = outbox.lease(&me, &take(1)).await;
    outbox.settle_all(&me, &lease, Settlement::Release).await;
    // One of the two that were never sent.
    outbox.lease(&other, &take(1)).await;
    outbox.store.reap(other.relay, 0, 5).await.unwrap();
    outbox
        .run("update outbox.messages set due_at = now() where due_at is not null")
        .await;
    let sent: i64 = outbox.count("outbox.messages where sent_to = 'e'").await;
    let lost: i64 = outbox
        .count("outbox.messages where sent_to = 'e' and lost = 1")
        .await;
    assert_eq!((sent, lost), (2, 1));
    expand(&outbox, &me, &all()).await;
    let moved = "outbox.messages where endpoint = 'e' and sent_to = 'e' and attempts + lost = 1";
    assert_eq!(outbox.count(moved).await, 2);
    assert_eq!(
        outbox
            .count("outbox.messages where endpoint in ('a', 'b') and sent_to is null")
            .await,
        2
    );
}

#[tokio::test]
async fn a_leased_row_is_left_where_it_is() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic) values ('t'), ('t')")
        .await;
    let lease = outbox.lease(&me, &take(1)).await;
    expand(&outbox, &me, &all()).await;
    assert_eq!(rows(&outbox).await, ["1 0 0", "a 2 0 0", "b 2 0 0"]);
    assert_eq!(
        outbox
            .settle(
                &me,
                &[verdict(lease.id, lease.ids[0], Settlement::Delivered)]
            )
            .await
            .settled
            .len(),
        1
    );
    assert_eq!(rows(&outbox).await, ["a 2 0 0", "b 2 0 0"]);
}

#[tokio::test]
async fn an_id_that_is_used_again_waits_for_the_first_one() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let again = "insert into outbox.messages (id, topic) values ('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 't')";
    outbox.run(again).await;
    expand(&outbox, &me, &all()).await;
    outbox.run(again).await;
    outbox
        .run("insert into outbox.messages (topic) values ('t')")
        .await;
    let expanded = expand(&outbox, &me, &all()).await;
    assert_eq!(expanded.seen.state, ClaimState::Claimed);
    assert_eq!(
        rows(&outbox).await,
        ["a 1 0 0", "b 1 0 0", "2 0 0", "a 3 0 0", "b 3 0 0"]
    );
    outbox
        .run("delete from outbox.messages where seq = 1")
        .await;
    expand(&outbox, &me, &all()).await;
    assert_eq!(
        outbox
            .count("outbox.messages where seq = 2 and endpoint in ('a', 'b')")
            .await,
        2
    );
}

#[tokio::test]
async fn rows_and_bytes_bound_what_is_taken_and_the_floors_go_on_from_there() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic, body) select 't', decode(repeat('00', 1000), 'hex') from generate_series(1, 5)")
        .await;
    let mut some = Expand { limit: 2, ..all() };
    let expanded = expand(&outbox, &me, &some).await;
    assert!(!expanded.seen.dry);
    some = Expand {
        limit: 10,
        bytes: 2500,
        floors: expanded.seen.floors.unwrap(),
        ..all()
    };
    let expanded = expand(&outbox, &me, &some).await;
    assert!(!expanded.seen.dry);
    assert_eq!(outbox.count("outbox.messages where endpoint = ''").await, 1);
    some = Expand {
        bytes: 1,
        floors: expanded.seen.floors.unwrap(),
        ..all()
    };
    expand(&outbox, &me, &some).await;
    assert_eq!(
        outbox.count("outbox.messages where endpoint = ''").await,
        0,
        "one is taken whatever its size"
    );
}

#[tokio::test]
async fn who_must_not_claim_must_not_expand() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic) values ('t')")
        .await;
    let state = async |me: &Registration| expand(&outbox, me, &all()).await.seen.state;
    let other = Registration {
        session: 1,
        ..me.clone()
    };
    assert_eq!(state(&other).await, ClaimState::OtherSession);
    let other = Registration {
        epoch: uuid::Uuid::nil(),
        ..me.clone()
    };
    assert_eq!(state(&other).await, ClaimState::OtherEpoch);
    let other = Registration {
        relay: uuid::Uuid::nil(),
        ..me.clone()
    };
    assert_eq!(state(&other).await, ClaimState::RelayGone);
    let busy = outbox.database.connect().await;
    busy.batch_execute("begin; select from outbox.lanes where topic = 't' for update")
        .await
        .unwrap();
    assert_eq!(state(&me).await, ClaimState::Busy);
    busy.batch_execute("delete from outbox.lanes; commit")
        .await
        .unwrap();
    assert_eq!(state(&me).await, ClaimState::Missing);
    assert_eq!(rows(&outbox).await, ["1 0 0"]);
    outbox.store.add_lanes(&[way(&LANE)]).await.unwrap();
    assert_eq!(state(&me).await, ClaimState::Claimed);
}

#[tokio::test]
async fn cancel_takes_all_that_is_pending_though_fan_out_moves_it_meanwhile() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let id = outbox.insert("null, null").await;
    let moving = outbox.database.connect().await;
    moving
        .batch_execute("begin isolation level read committed; select from outbox.lanes where topic = 't' for update")
        .await
        .unwrap();
    let mut cancel = JoinSet::new();
    let store = outbox.database.store();
    cancel.spawn(async move { store.cancel(id, Mandate::default()).await.unwrap() });
    outbox.blocked("outbox.cancel").await;
    // As fan-out does it.
    moving
        .batch_execute(
            "insert into outbox.lanes (topic, endpoint) values ('t', 'a'), ('t', 'b');
             with t as (delete from outbox.messages returning *)
             insert into outbox.messages (id, endpoint, seq, topic) overriding system value
             select t.id, e, t.seq, t.topic from t cross join unnest(array['a', 'b']) e; commit",
        )
        .await
        .unwrap();
    assert_eq!(cancel.join_next().await.unwrap().unwrap(), (2, 0));
    assert!(rows(&outbox).await.is_empty());
    // One of two is on its way: that one can't be taken back.
    let id = outbox.insert("null, null").await;
    expand(&outbox, &me, &all()).await;
    outbox
        .store
        .add_endpoints(&[("a", Duration::from_secs(10))])
        .await
        .unwrap();
    let lane = outbox_relay::message::Lane {
        topic: "t".into(),
        endpoint: "a".into(),
    };
    outbox
        .lease(
            &me,
            &outbox_relay::store::Claim {
                lane: &lane,
                endpoint: "a",
                ..take(1)
            },
        )
        .await;
    assert_eq!(
        outbox.store.cancel(id, Mandate::default()).await.unwrap(),
        (1, 1)
    );
    assert_eq!(rows(&outbox).await, ["a 2 0 0"]);
}
