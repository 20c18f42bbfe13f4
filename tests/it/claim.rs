//! A claim takes rows that are due, once, without waiting for anybody, and nothing that must not be sent.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use outbox_relay::{
    message::{Lane, Settlement},
    store::{Claim, ClaimState, Floors, Mandate},
};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

use crate::{
    outbox::{LANE, Outbox, take},
    support::rows::mandate,
};

mod floors;
mod hot_key;
mod in_order;
mod suspects;

#[tokio::test]
async fn a_lane_that_another_claims_is_busy_and_nobody_waits() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let other = outbox.database.connect().await;
    for locked in [
        "select from outbox.lanes for update",
        "select from outbox.endpoints for update",
        "update outbox.endpoints set pause_reason = null",
    ] {
        other.batch_execute("begin").await.unwrap();
        other.batch_execute(locked).await.unwrap();
        // A claim that waited would fail at its lock time-out.
        let claimed = outbox.claim(&me, &take(1)).await;
        assert_eq!(claimed.state, ClaimState::Busy, "{locked}");
        assert!(claimed.lease.is_none() && claimed.floors.is_none());
        other.batch_execute("rollback").await.unwrap();
    }
    outbox.lease(&me, &take(1)).await;
}

#[tokio::test]
async fn a_lane_or_an_endpoint_that_nobody_made_is_missing() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let lane = Lane {
        topic: "new".into(),
        endpoint: String::new(),
    };
    let claim = Claim {
        lane: &lane,
        ..take(1)
    };
    assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Missing);
    let claim = Claim {
        endpoint: "new",
        ..take(1)
    };
    assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Missing);
}

#[tokio::test]
async fn a_paused_endpoint_is_not_claimed_for() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    assert_eq!(
        outbox
            .store
            .pause("mistyped", mandate("moving", "me"))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        outbox
            .store
            .pause("e", mandate("moving", "me"))
            .await
            .unwrap(),
        Some(true)
    );
    assert_eq!(
        outbox
            .store
            .pause("e", mandate("again", "me"))
            .await
            .unwrap(),
        Some(false)
    );
    assert_eq!(outbox.claim(&me, &take(1)).await.state, ClaimState::Paused);
    assert_eq!(
        outbox.store.resume("e", Mandate::default()).await.unwrap(),
        Some(true)
    );
    assert_eq!(
        outbox.store.resume("e", Mandate::default()).await.unwrap(),
        Some(false)
    );
    outbox.lease(&me, &take(1)).await;
}

#[tokio::test]
async fn an_endpoint_that_asked_for_time_gets_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    outbox
        .run("update outbox.endpoints set not_before = now() + interval '1 hour'")
        .await;
    let claimed = outbox.claim(&me, &take(1)).await;
    assert_eq!(claimed.state, ClaimState::NotBefore);
    let left = claimed.next_due.unwrap();
    assert!((3500..=3600).contains(&left.as_secs()), "{left:?}");
    outbox
        .run("update outbox.endpoints set not_before = 'infinity'")
        .await;
    let claimed = outbox.claim(&me, &take(1)).await;
    assert_eq!(claimed.next_due, Some(Duration::MAX));
    outbox
        .run("update outbox.endpoints set not_before = now()")
        .await;
    outbox.lease(&me, &take(1)).await;
}

#[tokio::test]
async fn another_isolation_level_than_read_committed_is_refused() {
    let outbox = Outbox::new().await;
    let nobody = Uuid::nil();
    for level in ["repeatable read", "serializable"] {
        for (name, call) in [
            (
                "outbox.claim",
                format!(
                    "select from outbox.claim('{nobody}', 0, '{nobody}', 't', '', 'e', false, false, 1, 1, 1, 0, null, 0, 0, '{{}}', null, 1, 1, 1, 0)"
                ),
            ),
            (
                "outbox.settle",
                format!(
                    "select from outbox.settle('{nobody}', 'r', '', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', \
                     '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', true)"
                ),
            ),
            (
                "outbox.reap",
                format!("select from outbox.reap('{nobody}', 0, 3)"),
            ),
        ] {
            outbox.run(&format!("begin isolation level {level}")).await;
            let error = outbox.client.batch_execute(&call).await.unwrap_err();
            let said = error.as_db_error().unwrap().message().to_owned();
            assert_eq!(
                said,
                format!("{name} needs READ COMMITTED, not {}", level.to_uppercase())
            );
            outbox.run("rollback").await;
        }
    }
}

#[tokio::test]
async fn only_the_relay_as_it_registered_may_claim() {
    let outbox = Outbox::new().await;
    outbox.insert("'k', null::timestamptz").await;
    let state = async |me: &_| outbox.claim(me, &take(1)).await.state;

    let mut gone = outbox.relay().await;
    outbox.store.deregister(gone.relay).await.unwrap();
    assert_eq!(state(&gone).await, ClaimState::RelayGone);
    gone.relay = Uuid::nil();
    assert_eq!(state(&gone).await, ClaimState::RelayGone);

    let mut me = outbox.relay().await;
    let session = outbox.store.recover(me.relay, &[]).await.unwrap();
    assert_eq!(session, Some(me.session + 1));
    assert_eq!(state(&me).await, ClaimState::OtherSession);
    me.session += 1;

    // What a crash does to an unlogged table.
    outbox.run("truncate outbox.epoch").await;
    assert_eq!(state(&me).await, ClaimState::OtherEpoch);
    let anew = outbox.relay().await;
    assert_ne!(anew.epoch, me.epoch);
    assert_eq!(state(&me).await, ClaimState::OtherEpoch);
    assert_eq!(state(&anew).await, ClaimState::Claimed);
}

#[tokio::test]
async fn eight_relays_never_lease_a_row_twice() {
    const ROWS: usize = 5000;
    let outbox = Arc::new(Outbox::new().await);
    outbox
        .run(
            "insert into outbox.messages (topic, key, due_at)
             select 't', case n % 3 when 0 then 'k' || n % 50 end, case n % 2 when 0 then now() end
               from generate_series(1, 5000) n",
        )
        .await;
    let leased = Arc::new(AtomicUsize::new(0));
    let mut relays = JoinSet::new();
    for number in 0..8 {
        let (outbox, leased) = (outbox.clone(), leased.clone());
        relays.spawn(async move {
            let store = outbox.database.store();
            let me = outbox.relay().await;
            let mut floors = Floors::default();
            while leased.load(Ordering::Relaxed) < ROWS {
                let claim = Claim {
                    floors: floors.clone(),
                    ..take(40 + number * 20)
                };
                let claimed = store.claim(&me, &claim).await.unwrap();
                floors = match claimed.floors {
                    // Nothing above: others moved this relay's floor past nothing, so look again from the bottom.
                    Some(_) if claimed.lease.is_none() => Floors::default(),
                    Some(floors) => floors,
                    None => floors,
                };
                let taken = claimed.lease.map_or(0, |lease| lease.ids.len());
                leased.fetch_add(taken, Ordering::Relaxed);
            }
        });
    }
    let all = timeout(Duration::from_secs(60), async {
        while let Some(ended) = relays.join_next().await {
            ended.unwrap();
        }
    });
    all.await.unwrap();
    let ids: Vec<Uuid> = outbox
        .all("select unnest(ids) from outbox.leases", &[])
        .await;
    assert_eq!(ids.len(), ROWS);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ROWS);
    // ids ascend, and keys are in step with them.
    let wrong = outbox
        .count(
            "outbox.leases l
              where l.ids <> array(select i from unnest(l.ids) i order by i)
                 or l.keys <> array(select coalesce(m.key, '') from outbox.messages m where m.id = any (l.ids) order by m.id)",
        )
        .await;
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn a_row_that_went_to_one_endpoint_does_not_go_to_another_too() {
    // Two configurations during a rolling update.
    let outbox = Outbox::new().await;
    outbox
        .store
        .add_endpoints(&[("other", Duration::from_secs(10))])
        .await
        .unwrap();
    let me = outbox.relay().await;
    outbox.insert("null, null::timestamptz").await;
    outbox.lease(&me, &take(1)).await;
    let claim = Claim {
        endpoint: "other",
        ..take(1)
    };
    let me = outbox.relay().await;
    assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Empty);
}

#[tokio::test]
async fn bytes_bound_a_batch_but_one_message_always_goes() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run(
            "insert into outbox.messages (topic, body)
             select 't', decode(repeat('00', n), 'hex') from unnest(array[1000, 10, 10, 10, 5000, 1]) n",
        )
        .await;
    for in_order in [false, true] {
        let mut batches = Vec::new();
        loop {
            let claim = Claim {
                in_order,
                bytes: 30,
                ..take(100)
            };
            let Some(lease) = outbox.claim(&me, &claim).await.lease else {
                break;
            };
            batches.push(lease.ids.len());
        }
        assert_eq!(batches, [1, 3, 1, 1], "in order: {in_order}");
        outbox.run("delete from outbox.leases").await;
    }
}

#[tokio::test]
async fn retries_and_fresh_rows_go_side_by_side() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let fill = async |waiting: i32, fresh: i32| {
        outbox.run("truncate outbox.messages, outbox.leases").await;
        outbox
            .run(&format!(
                "insert into outbox.messages (topic, due_at, attempts) select 't', now() - interval '1 s', 1 from generate_series(1, {waiting});
                 insert into outbox.messages (topic) select 't' from generate_series(1, {fresh})"
            ))
            .await;
    };
    for in_order in [false, true] {
        let take = || Claim {
            in_order,
            ..take(10)
        };
        let mut waiting = Vec::new();
        for (retries, fresh) in [(1000, 1000), (1000, 3), (3, 1000)] {
            fill(retries, fresh).await;
            let lease = outbox.lease(&me, &take()).await;
            assert_eq!(lease.ids.len(), 10);
            let retried: i64 = outbox
                .one(
                    "select count(*) from outbox.messages where id = any ($1) and due_at is not null",
                    &[&lease.ids],
                )
                .await;
            waiting.push(retried);
        }
        assert_eq!(waiting, [5, 7, 3], "in order: {in_order}");
    }
}

#[tokio::test]
async fn what_is_not_yet_due_is_left_and_its_time_is_told() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let claimed = outbox.claim(&me, &take(5)).await;
    assert!(claimed.dry && claimed.next_due.is_none());
    outbox.insert("null, now() + interval '100 s'").await;
    outbox.insert("null, now() + interval '50 s'").await;
    for in_order in [false, true] {
        let claim = Claim {
            in_order,
            ..take(5)
        };
        let claimed = outbox.claim(&me, &claim).await;
        assert_eq!(claimed.state, ClaimState::Empty);
        assert!(claimed.dry);
        let due = claimed.next_due.unwrap().as_secs_f64();
        assert!((40.0..=50.0).contains(&due), "{due}");
    }
    let found = outbox.store.discover().await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(!found[0].ready);
    assert!((40..=50).contains(&found[0].due.unwrap().as_secs()));

    outbox.insert("null, now()").await;
    let claimed = outbox.claim(&me, &take(5)).await;
    assert_eq!(claimed.lease.unwrap().ids.len(), 1);
    assert!(claimed.dry && claimed.next_due.unwrap().as_secs() <= 50);
}

#[tokio::test]
async fn a_row_that_is_due_at_infinity_disturbs_nobody() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', 'infinity'").await;
    let found = outbox.store.discover().await.unwrap();
    assert_eq!(found[0].due, Some(Duration::MAX));
    assert_eq!(
        outbox.claim(&me, &take(5)).await.next_due,
        Some(Duration::MAX)
    );
    outbox.store.status().await.unwrap();
    let past = outbox.insert("'k', '-infinity'").await;
    let claimed = outbox.claim(&me, &take(5)).await;
    assert_eq!(claimed.lease.unwrap().ids, [past]);
    assert!(claimed.floors.unwrap().waiting.is_none());
}

#[tokio::test]
async fn a_claim_may_be_forgotten_by_a_crash_but_a_settle_may_not() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let id = outbox.insert("null, null::timestamptz").await;
    outbox.run("begin").await;
    let lease: i64 = outbox
        .one(
            "select lease from outbox.claim($1, 0, $2, 't', '', 'e', false, false, 1, 1, 1, 0, null, 0, 0, '{}', null, 1, 1, 1, 0)",
            &[&me.relay, &me.epoch],
        )
        .await;
    let now: String = outbox.one("show synchronous_commit", &[]).await;
    assert_eq!(now, "off");
    outbox.run("commit; begin").await;
    outbox
        .run(&format!(
            "select from outbox.settle('{}', 'r', '', '{{e}}', '{{{lease}}}', '{{{id}}}', array[(select m.seq from outbox.messages m)], '{{0}}', '{{delivered}}', '{{0}}', '{{null}}', \
             '{{f}}', '{{1}}', '{{success}}', '{{200}}', '{{null}}', '{{null}}', '{{0}}', '{{0}}', true)",
            me.relay
        ))
        .await;
    let now: String = outbox.one("show synchronous_commit", &[]).await;
    assert_eq!(now, "on");
    outbox.run("commit").await;
    assert_eq!(outbox.count("outbox.messages").await, 0);
}

#[tokio::test]
async fn a_lease_keeps_its_rows_to_itself_until_they_are_settled() {
    let outbox = Outbox::new().await;
    let (me, other) = (outbox.relay().await, outbox.relay().await);
    outbox.insert("null, null::timestamptz").await;
    let lease = outbox.lease(&me, &take(1)).await;
    assert_eq!(lease.lane, *LANE);
    assert_eq!(
        outbox.claim(&other, &take(1)).await.state,
        ClaimState::Empty
    );
    outbox.settle_all(&me, &lease, Settlement::Release).await;
    assert_eq!(outbox.lease(&other, &take(1)).await.ids, lease.ids);
}
