//! A key whose messages are in two lanes that lead to one endpoint: while two configurations run side by side.

use std::{sync::LazyLock, time::Duration};

use outbox_relay::{
    message::{Lane, Reason, Settlement},
    store::{Claim, Records, Registration, Settle},
};
use uuid::Uuid;

use crate::{
    outbox::{ENDPOINT, LANE, Outbox, take_in_order, verdict},
    support::rows::way,
};

/// The lane of fan-out to the same endpoint.
static OTHER: LazyLock<Lane> = LazyLock::new(|| Lane {
    topic: "t".into(),
    endpoint: ENDPOINT.into(),
});

/// Both lanes, the second one holding `rows` of `(seq, key)`; those of the topic's own lane come as `own`.
async fn outbox(own: &str, rows: &str) -> (Outbox, Registration) {
    let outbox = Outbox::new().await;
    outbox.store.add_lanes(&[way(&OTHER)]).await.unwrap();
    for (endpoint, rows) in [("", own), (ENDPOINT, rows)] {
        if !rows.is_empty() {
            outbox
                .run(&format!(
                    "insert into outbox.messages (topic, endpoint, seq, key, due_at, attempts) overriding system value
                     select 't', '{endpoint}', v.seq, v.key, v.due::timestamptz, v.attempts from (values {rows}) v (seq, key, due, attempts)"
                ))
                .await;
        }
    }
    let me = outbox.relay().await;
    (outbox, me)
}

/// What a claim of this lane takes, by `seq`.
async fn taken(outbox: &Outbox, me: &Registration, lane: &'static Lane) -> Vec<i64> {
    match outbox.claim(me, &of(lane)).await.lease {
        Some(lease) => outbox.seqs(&lease.ids).await,
        None => Vec::new(),
    }
}

fn of(lane: &'static Lane) -> Claim<'static> {
    Claim {
        lane,
        hold: true,
        ..take_in_order(10)
    }
}

/// The first column of what `(own, other)` hold, and which of them may be claimed at first.
#[tokio::test]
async fn an_earlier_row_in_the_other_lane_goes_first() {
    const NOW: &str = "null";
    const LATER: &str = "(now() + interval '1 hour')::text";
    let table: [(&str, &str, &[i64], &[i64]); 7] = [
        // own lane, the other lane, taken from the own lane, taken from the other lane after that was settled
        ("(1, 'k', null, 0)", "(2, 'k', null, 0)", &[1], &[2]),
        ("(2, 'k', null, 0)", "(1, 'k', null, 0)", &[], &[1]),
        // Of another key, or of none.
        ("(2, 'k', null, 0)", "(1, 'j', null, 0)", &[2], &[1]),
        ("(2, null, null, 0)", "(1, null, null, 0)", &[2], &[1]),
        // One that was tried is live though it is not due, one that is scheduled is not.
        ("(2, 'k', null, 0)", "(1, 'k', LATER, 1)", &[], &[]),
        ("(2, 'k', null, 0)", "(1, 'k', LATER, 0)", &[2], &[]),
        // Between two of the other lane.
        (
            "(2, 'k', null, 0)",
            "(1, 'k', null, 0), (3, 'k', null, 0)",
            &[],
            &[1],
        ),
    ];
    for (own, other, first, second) in table {
        let text = |rows: &str| rows.replace("LATER", LATER).replace("NOW", NOW);
        let (outbox, me) = outbox(&text(own), &text(other)).await;
        let shown = format!("{own} | {other}");
        let lease = outbox.claim(&me, &of(&LANE)).await.lease;
        match &lease {
            Some(lease) => {
                assert_eq!(outbox.seqs(&lease.ids).await, first, "{shown}");
                outbox.settle_all(&me, lease, Settlement::Delivered).await;
            }
            None => assert!(first.is_empty(), "{shown}"),
        }
        assert_eq!(taken(&outbox, &me, &OTHER).await, second, "{shown}");
    }
}

#[tokio::test]
async fn nothing_of_a_key_goes_while_the_other_lane_has_a_lease_on_it() {
    for (first, second) in [(&LANE, &OTHER), (&OTHER, &LANE)] {
        let (own, other) = if **first == *LANE {
            ("(2, 'k', null, 0)", "")
        } else {
            ("", "(2, 'k', null, 0)")
        };
        let (outbox, me) = outbox(own, other).await;
        let lease = outbox.lease(&me, &of(first)).await;
        // An earlier one commits late, into the other lane: it is first, and yet not in parallel.
        outbox
            .run(&format!(
                "insert into outbox.messages (topic, endpoint, seq, key) overriding system value
                 values ('t', '{}', 1, 'k'), ('t', '{0}', 3, 'other')",
                second.endpoint
            ))
            .await;
        let claimed = outbox.lease(&me, &of(second)).await;
        assert_eq!(outbox.seqs(&claimed.ids).await, [3]);
        let settle = Settle {
            lane: (**first).clone(),
            ..verdict(lease.id, lease.ids[0], Settlement::Retry(Duration::ZERO))
        };
        let settles = outbox.of_now(&[settle]).await;
        outbox
            .store
            .settle(&me, "a relay", &first.endpoint, &settles, Records::ATTEMPTS)
            .await
            .unwrap();
        assert!(
            taken(&outbox, &me, first).await.is_empty(),
            "the earlier one comes first"
        );
        assert_eq!(taken(&outbox, &me, second).await, [1]);
    }
}

#[tokio::test]
async fn a_lease_for_another_endpoint_closes_nothing() {
    let (outbox, me) = outbox("(2, 'k', null, 0)", "(1, 'k', null, 0)").await;
    outbox
        .store
        .add_endpoints(&[("elsewhere", Duration::from_secs(10))])
        .await
        .unwrap();
    outbox
        .lease(
            &me,
            &Claim {
                endpoint: "elsewhere",
                ..of(&LANE)
            },
        )
        .await;
    assert_eq!(taken(&outbox, &me, &OTHER).await, [1]);
}

#[tokio::test]
async fn a_dead_head_holds_its_key_in_both_lanes() {
    for (first, second) in [(&LANE, &OTHER), (&OTHER, &LANE)] {
        let (own, other) = if **first == *LANE {
            ("(1, 'k', null, 0)", "(2, 'k', null, 0)")
        } else {
            ("(2, 'k', null, 0)", "(1, 'k', null, 0)")
        };
        let (outbox, me) = outbox(own, other).await;
        let lease = outbox.lease(&me, &of(first)).await;
        let id: Uuid = lease.ids[0];
        let dead = Settle {
            hold: true,
            ..verdict(lease.id, id, Settlement::Dead(Reason::Rejected))
        };
        let settles = outbox.of_now(&[dead]).await;
        outbox
            .store
            .settle(&me, "a relay", &first.endpoint, &settles, Records::ATTEMPTS)
            .await
            .unwrap();
        assert_eq!(
            outbox
                .count(&format!(
                    "outbox.held_keys where endpoint = 'e' and lane_endpoint = '{}'",
                    first.endpoint
                ))
                .await,
            1
        );
        assert!(taken(&outbox, &me, second).await.is_empty());
        // One that was meant for another endpoint holds nothing here.
        outbox
            .run("update outbox.held_keys set endpoint = 'elsewhere'")
            .await;
        assert_eq!(taken(&outbox, &me, second).await, [2]);
    }
}

/// A row that relays died with goes alone, but not before its turn.
#[tokio::test]
async fn a_suspect_waits_for_the_earlier_row_too() {
    let (outbox, me) = outbox("(2, 'k', now()::text, 0)", "(1, 'k', null, 0)").await;
    outbox
        .run("update outbox.messages set lost = 2 where seq = 2")
        .await;
    assert!(taken(&outbox, &me, &LANE).await.is_empty());
    outbox
        .run("delete from outbox.messages where seq = 1")
        .await;
    assert_eq!(taken(&outbox, &me, &LANE).await, [2]);
}

#[tokio::test]
async fn a_head_that_expired_before_fan_out_holds_its_key_at_every_endpoint() {
    let (outbox, me) = outbox("(1, 'k', null, 0)", "(2, 'k', null, 0)").await;
    outbox
        .run("update outbox.messages set expires_at = now() where seq = 1")
        .await;
    let id: Uuid = outbox
        .one("select id from outbox.messages where seq = 1", &[])
        .await;
    let ids = [id];
    assert_eq!(expire(&outbox, &LANE, Some(""), &ids).await, 1);
    assert!(taken(&outbox, &me, &OTHER).await.is_empty());
    outbox.run("delete from outbox.held_keys").await;
    assert_eq!(taken(&outbox, &me, &OTHER).await, [2]);
}

/// How many of these are given up where a dead head holds its key.
async fn expire(outbox: &Outbox, lane: &Lane, endpoint: Option<&str>, ids: &[Uuid]) -> i32 {
    let expired = outbox
        .store
        .expire(Uuid::nil(), "a relay", lane, endpoint, true, ids)
        .await;
    expired.unwrap().dead
}

#[tokio::test]
async fn what_expires_behind_an_earlier_row_of_the_other_lane_waits_for_it() {
    // The lane of the row that has expired, where it leads, and the lane of the row before it.
    let table: [(&Lane, &str, &str); 4] = [
        (&OTHER, ENDPOINT, ""),
        (&LANE, ENDPOINT, ENDPOINT),
        (&LANE, "", ENDPOINT),
        (&LANE, "elsewhere", ENDPOINT),
    ];
    for (lane, to, before) in table {
        let rows = |lane: &str| match lane == before {
            true => "(1, 'k', null, 0)",
            false => "(2, 'k', null, 0), (3, 'j', null, 0)",
        };
        let (outbox, _) = outbox(rows(""), rows(ENDPOINT)).await;
        outbox
            .run("update outbox.messages set expires_at = now() where seq > 1")
            .await;
        let ids: Vec<Uuid> = outbox
            .all("select id from outbox.messages where seq > 1", &[])
            .await;
        let shown = format!("{lane:?} {to} {before}");
        let alone = to == "elsewhere";
        let dead = if alone { 2 } else { 1 };
        assert_eq!(expire(&outbox, lane, Some(to), &ids).await, dead, "{shown}");
        outbox
            .run("delete from outbox.messages where seq = 1")
            .await;
        assert_eq!(expire(&outbox, lane, Some(to), &ids).await, 2 - dead);
    }
}

#[tokio::test]
async fn what_expires_behind_a_dead_head_of_the_other_lane_waits_for_it() {
    for (lane, other) in [(&OTHER, &LANE), (&LANE, &OTHER)] {
        let row = "(2, 'k', null, 0)";
        let (own, rest) = if lane.endpoint.is_empty() {
            (row, "")
        } else {
            ("", row)
        };
        let (outbox, _) = outbox(own, rest).await;
        let hold = format!(
            "update outbox.messages set expires_at = now();
             insert into outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
             values ('t', '{}', 'k', '{ENDPOINT}', gen_random_uuid(), 1)",
            other.endpoint
        );
        outbox.run(&hold).await;
        let ids: Vec<Uuid> = outbox.all("select id from outbox.messages", &[]).await;
        assert_eq!(expire(&outbox, lane, Some(ENDPOINT), &ids).await, 0);
        outbox.run("delete from outbox.held_keys").await;
        assert_eq!(expire(&outbox, lane, Some(ENDPOINT), &ids).await, 1);
    }
}
