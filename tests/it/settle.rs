//! A settle applies what came of deliveries exactly once, and only what its leases still give the right to.

use std::{collections::BTreeSet, time::Duration};

use outbox_relay::{
    message::{Lease, Reason, Settlement},
    store::{Claim, History, Records, Registration, Settle},
};
use uuid::Uuid;

use crate::outbox::{Outbox, take, take_in_order, verdict};

mod guard;

const HOUR: Duration = Duration::from_secs(3600);

/// So many rows under one lease; their keys are k1, k2, …
async fn leased(rows: i32) -> (Outbox, Registration, Lease) {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run(&format!(
            "insert into outbox.messages (topic, key, payload) select 't', 'k' || n, '{{\"n\": 1}}' from generate_series(1, {rows}) n"
        ))
        .await;
    let lease = outbox.lease(&me, &take(rows)).await;
    (outbox, me, lease)
}

#[tokio::test]
async fn a_delivered_message_is_archived_and_leaves_the_table() {
    let (outbox, me, lease) = leased(1).await;
    let id = lease.ids[0];
    let settles = [verdict(lease.id, id, Settlement::Delivered)];
    let report = outbox.archive(&me, &settles).await;
    assert_eq!((report.settled, report.history_error), (vec![id], None));
    assert_eq!(outbox.count("outbox.messages").await, 0);
    assert_eq!(outbox.count("outbox.leases").await, 0);
    let archived = "outbox.delivered where topic = 't' and lane_endpoint = '' and endpoint = 'e' and key = 'k1' and seq = 1
         and attempts = 1 and payload::text = '{\"n\": 1}' and delivered_at > now() - interval '1 minute'";
    assert_eq!(outbox.count(archived).await, 1);
    let told = "outbox.attempts where attempt = 1 and status = 200 and outcome = 'success' and settlement = 'delivered'
         and reason is null and relay = 'a relay' and endpoint = 'e' and key = 'k1' and response = 'said the receiver'
         and duration = interval '20 ms' and started_at <= now()";
    assert_eq!(outbox.count(told).await, 1);
}

#[tokio::test]
async fn without_an_archive_nothing_of_the_payload_is_kept() {
    let (outbox, me, lease) = leased(1).await;
    outbox.settle_all(&me, &lease, Settlement::Delivered).await;
    assert_eq!(outbox.count("outbox.messages").await, 0);
    assert_eq!(outbox.count("outbox.delivered").await, 0);
    assert_eq!(outbox.count("outbox.attempts").await, 1);
}

#[tokio::test]
async fn a_retry_is_due_after_its_delay_and_counts() {
    let (outbox, me, lease) = leased(1).await;
    outbox
        .settle_all(&me, &lease, Settlement::Retry(HOUR))
        .await;
    let moved = "outbox.messages where attempts = 1 and lost = 0 and last_error = '503: said the receiver'
         and due_at between clock_timestamp() + interval '59 min' and clock_timestamp() + interval '1 hour'";
    assert_eq!(outbox.count(moved).await, 1);
    assert_eq!(outbox.count("outbox.leases").await, 0);
    let told = "outbox.attempts where outcome = 'unavailable' and settlement = 'retry' and status = 503 and error = '503'";
    assert_eq!(outbox.count(told).await, 1);
}

#[tokio::test]
async fn a_dead_message_is_kept_as_a_dead_letter_with_its_reason() {
    for reason in [
        Reason::Rejected,
        Reason::Attempts,
        Reason::MaxAge,
        Reason::Expired,
    ] {
        let (outbox, me, lease) = leased(1).await;
        let mut dead = verdict(lease.id, lease.ids[0], Settlement::Dead(reason));
        if reason == Reason::Expired {
            dead.outcome = None;
        }
        let attempts = i64::from(dead.outcome.is_some());
        outbox.settle(&me, &[dead]).await;
        assert_eq!(outbox.count("outbox.messages").await, 0);
        let kept = format!(
            "outbox.dead_letters where reason = '{reason}' and lane_endpoint = '' and endpoint = 'e' and key = 'k1' and seq = 1
               and attempts = {attempts} and payload::text = '{{\"n\": 1}}'"
        );
        assert_eq!(outbox.count(&kept).await, 1, "{reason}");
        // A death has its line in the history, with or without a request.
        let outcome = ["expired", "rejected"][usize::try_from(attempts).unwrap()];
        let told = format!(
            "outbox.attempts where settlement = 'dead' and reason = '{reason}' and outcome = '{outcome}'"
        );
        assert_eq!(outbox.count(&told).await, 1, "{reason}");
        assert_eq!(outbox.count("outbox.held_keys").await, 0);
    }
}

#[tokio::test]
async fn a_release_leaves_the_row_untouched() {
    let (outbox, me, lease) = leased(2).await;
    let row = "select m::text from outbox.messages m order by seq";
    let before: Vec<String> = outbox.all(row, &[]).await;
    outbox.settle_all(&me, &lease, Settlement::Release).await;
    assert_eq!(outbox.all::<String>(row, &[]).await, before);
    assert_eq!(outbox.count("outbox.leases").await, 0);
    assert_eq!(outbox.count("outbox.attempts").await, 0);
}

#[tokio::test]
async fn a_message_that_is_gone_leaves_its_lease() {
    let (outbox, me, lease) = leased(2).await;
    outbox
        .run("delete from outbox.messages where key = 'k1'")
        .await;
    outbox.settle_all(&me, &lease, Settlement::Release).await;
    assert_eq!(outbox.count("outbox.leases").await, 0);
}

#[tokio::test]
async fn ids_and_keys_leave_a_lease_in_step_and_the_last_one_ends_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', case n % 3 when 0 then 'k' || n end from generate_series(1, 9) n")
        .await;
    for claim in [take(9), take_in_order(9)] {
        let lease = outbox.lease(&me, &claim).await;
        let in_step = "outbox.leases l where l.keys = array(
             select coalesce(m.key, '') from outbox.messages m where m.id = any (l.ids) order by m.id)";
        for (done, id) in [5, 0, 7, 3, 1, 8, 2, 6].into_iter().enumerate() {
            let settle = verdict(lease.id, lease.ids[id], Settlement::Release);
            outbox.settle(&me, &[settle]).await;
            let left: i32 = outbox
                .one("select cardinality(ids) from outbox.leases", &[])
                .await;
            assert_eq!(usize::try_from(left).unwrap(), 8 - done);
            assert_eq!(outbox.count(in_step).await, 1);
        }
        outbox
            .settle(&me, &[verdict(lease.id, lease.ids[4], Settlement::Release)])
            .await;
        assert_eq!(outbox.count("outbox.leases").await, 0);
    }
}

#[tokio::test]
async fn a_lease_without_keys_has_none_after_a_partial_settle() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic) select 't' from generate_series(1, 3)")
        .await;
    let lease = outbox.lease(&me, &take(3)).await;
    outbox
        .settle(
            &me,
            &[verdict(lease.id, lease.ids[1], Settlement::Delivered)],
        )
        .await;
    let left = "outbox.leases where cardinality(ids) = 2 and keys = '{}'";
    assert_eq!(outbox.count(left).await, 1);
}

#[tokio::test]
async fn a_dead_head_is_written_down_as_holding_its_key() {
    let (outbox, me, lease) = leased(2).await;
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .map(|id| Settle {
            hold: true,
            ..verdict(lease.id, *id, Settlement::Dead(Reason::Rejected))
        })
        .collect();
    outbox.settle(&me, &settles).await;
    let held: Vec<String> = outbox
        .all(
            "select h.key from outbox.held_keys h join outbox.dead_letters d on (d.id, d.seq, d.key) = (h.id, h.seq, h.key)
              where h.topic = 't' and h.lane_endpoint = '' order by 1",
            &[],
        )
        .await;
    assert_eq!(held, ["k1", "k2"]);
}

#[tokio::test]
async fn of_an_id_that_dies_again_the_last_death_is_kept() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for (topic_type, reason) in [("first", Reason::Rejected), ("second", Reason::Attempts)] {
        outbox
            .run(&format!(
                "insert into outbox.messages (id, topic, type) values ('00000000-0000-4000-8000-000000000001', 't', '{topic_type}')"
            ))
            .await;
        let lease = outbox.lease(&me, &take(1)).await;
        outbox
            .settle_all(&me, &lease, Settlement::Dead(reason))
            .await;
    }
    let last = "outbox.dead_letters where type = 'second' and reason = 'attempts' and seq = 2";
    assert_eq!(outbox.count(last).await, 1);
    assert_eq!(outbox.count("outbox.dead_letters").await, 1);
}

#[tokio::test]
async fn history_that_cannot_be_written_never_fails_a_settle() {
    for missing in ["outbox.attempts", "outbox.delivered"] {
        let (outbox, me, lease) = leased(3).await;
        outbox.drop_partitions(missing).await;
        let settles = [
            verdict(lease.id, lease.ids[0], Settlement::Delivered),
            verdict(lease.id, lease.ids[1], Settlement::Dead(Reason::Rejected)),
            verdict(lease.id, lease.ids[2], Settlement::Retry(HOUR)),
        ];
        let report = outbox.archive(&me, &settles).await;
        let settled: BTreeSet<Uuid> = report.settled.into_iter().collect();
        assert_eq!(settled, lease.ids.iter().copied().collect());
        let error = report.history_error.unwrap();
        assert!(error.contains("no partition of relation"), "{error}");
        assert_eq!(outbox.count("outbox.dead_letters").await, 1);
        assert_eq!(outbox.count("outbox.messages where attempts = 1").await, 1);
        assert_eq!(outbox.count("outbox.messages").await, 1);
        assert_eq!(outbox.count("outbox.leases").await, 0);
    }
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_written_keeps_the_row_and_its_lease() {
    let (outbox, me, lease) = leased(1).await;
    outbox
        .run(
            "alter table outbox.dead_letters add constraint full_disk check (reason <> 'rejected')",
        )
        .await;
    let dead = [verdict(
        lease.id,
        lease.ids[0],
        Settlement::Dead(Reason::Rejected),
    )];
    let dead = outbox.of_now(&dead).await;
    let error = outbox
        .store
        .settle(&me, "a relay", "", &dead, Records::ALL)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("full_disk"), "{error}");
    assert_eq!(outbox.count("outbox.messages").await, 1);
    assert_eq!(outbox.count("outbox.leases").await, 1);
}

#[tokio::test]
async fn a_failed_row_gives_back_the_rest_of_its_key() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', 'k' from generate_series(1, 3)")
        .await;
    let (lease, loaded) = outbox.loaded(&me, &take_in_order(3)).await;
    let settles = [
        verdict(lease.id, loaded[0].id, Settlement::Retry(HOUR)),
        verdict(lease.id, loaded[1].id, Settlement::Release),
        verdict(lease.id, loaded[2].id, Settlement::Release),
    ];
    outbox.settle(&me, &settles).await;
    assert_eq!(outbox.count("outbox.leases").await, 0);
    let keys = ["k".to_owned()];
    let claim = Claim {
        open_keys: &keys,
        ..take_in_order(3)
    };
    assert!(outbox.claim(&me, &claim).await.lease.is_none());
    let untouched = "outbox.messages where attempts = 0 and due_at is null";
    assert_eq!(outbox.count(untouched).await, 2);
}

#[tokio::test]
async fn as_much_is_written_down_as_is_wanted() {
    for (history, want) in [
        (History::All, vec!["dead", "delivered", "retry"]),
        (History::Failures, vec!["dead", "retry"]),
        (History::None, vec![]),
    ] {
        let (outbox, me, lease) = leased(3).await;
        let ways = [
            Settlement::Delivered,
            Settlement::Retry(HOUR),
            Settlement::Dead(Reason::Rejected),
        ];
        let verdicts = lease.ids.iter().zip(ways);
        let settles: Vec<Settle> = verdicts
            .map(|(id, way)| verdict(lease.id, *id, way))
            .collect();
        let records = Records {
            history,
            ..Records::ALL
        };
        let report = outbox.send(&me, &settles, records).await;
        assert_eq!((report.settled.len(), report.history_error), (3, None));
        let told = "select settlement from outbox.attempts order by settlement";
        assert_eq!(outbox.all::<String>(told, &[]).await, want, "{history}");
        assert_eq!(outbox.count("outbox.delivered").await, 1);
        assert_eq!(outbox.count("outbox.dead_letters").await, 1);
    }
}
