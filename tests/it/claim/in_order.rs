//! The head rule: of a key, only its earliest live row goes, and then what follows it, up to the first that is not due.

use std::time::Duration;

use outbox_relay::{
    message::{Reason, Settlement},
    store::{Claim, ClaimState, Registration, Settle},
};

use crate::outbox::{Outbox, take, take_in_order, verdict};

const FRESH: &str = "null::timestamptz";
const LATER: &str = "now() + interval '1 hour'";

/// Inserts rows of `(key, due_at, attempts)`; their `seq` counts from 1.
async fn rows(outbox: &Outbox, rows: &[(&str, &str, i32)]) {
    for (key, due, attempts) in rows {
        outbox
            .run(&format!(
                "insert into outbox.messages (topic, key, due_at, attempts) values ('t', nullif('{key}', ''), {due}, {attempts})"
            ))
            .await;
    }
}

/// What a claim takes, by `seq`.
async fn taken(outbox: &Outbox, me: &Registration, claim: &Claim<'_>) -> Vec<i64> {
    match outbox.claim(me, claim).await.lease {
        Some(lease) => outbox.seqs(&lease.ids).await,
        None => Vec::new(),
    }
}

#[tokio::test]
async fn the_head_and_its_followers_go_in_the_order_of_seq() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(&outbox, &[("k", FRESH, 0); 6]).await;
    let claim = Claim {
        chain: 3,
        ..take_in_order(10)
    };
    let (_, loaded) = outbox.loaded(&me, &claim).await;
    let seqs: Vec<i64> = loaded.iter().map(|delivery| delivery.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Empty);
}

#[tokio::test]
async fn heads_go_before_followers() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for key in ["a", "b", "c"] {
        rows(&outbox, &[(key, FRESH, 0); 3]).await;
    }
    assert_eq!(taken(&outbox, &me, &take_in_order(3)).await, [1, 4, 7]);
}

#[tokio::test]
async fn a_head_in_backoff_closes_its_key_and_no_other() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(
        &outbox,
        &[
            ("k", LATER, 1),
            ("k", FRESH, 0),
            ("other", FRESH, 0),
            ("", FRESH, 0),
        ],
    )
    .await;
    assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, [3, 4]);
    outbox
        .run("update outbox.messages set due_at = now() where seq = 1")
        .await;
    assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, [1, 2]);
    // Waiting used nothing of what waited.
    assert_eq!(
        outbox
            .count("outbox.messages where seq = 2 and attempts = 0 and due_at is null")
            .await,
        1
    );
}

#[tokio::test]
async fn whatever_was_tried_is_live() {
    for column in ["attempts", "lost", "throttled", "generation"] {
        let outbox = Outbox::new().await;
        let me = outbox.relay().await;
        rows(&outbox, &[("k", LATER, 0), ("k", FRESH, 0)]).await;
        outbox
            .run(&format!(
                "update outbox.messages set {column} = 1 where seq = 1"
            ))
            .await;
        assert!(
            taken(&outbox, &me, &take_in_order(10)).await.is_empty(),
            "{column}"
        );
    }
}

#[tokio::test]
async fn a_row_scheduled_for_later_joins_its_key_when_it_is_due() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(&outbox, &[("k", LATER, 0), ("k", FRESH, 0)]).await;
    let lease = outbox.lease(&me, &take_in_order(10)).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [2]);
    outbox.settle_all(&me, &lease, Settlement::Delivered).await;
    rows(&outbox, &[("k", FRESH, 0)]).await;
    outbox
        .run("update outbox.messages set due_at = now() where seq = 1")
        .await;
    assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, [1, 3]);
}

#[tokio::test]
async fn nothing_goes_past_the_first_live_row_that_is_not_due() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(
        &outbox,
        &[
            // A tried row behind a scheduled one is the head.
            ("a", LATER, 0),
            ("a", LATER, 1),
            ("a", FRESH, 0),
            ("b", FRESH, 0),
            ("b", LATER, 1),
            ("b", FRESH, 0),
            ("c", FRESH, 0),
            ("c", LATER, 0),
            ("c", FRESH, 0),
        ],
    )
    .await;
    assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, [4, 7, 9]);
}

#[tokio::test]
async fn a_leased_key_is_closed_for_all_relays_however_it_was_leased() {
    for first in [take(1), take_in_order(1)] {
        let outbox = Outbox::new().await;
        let (me, other) = (outbox.relay().await, outbox.relay().await);
        rows(
            &outbox,
            &[("k", FRESH, 0), ("k", FRESH, 0), ("cold", FRESH, 0)],
        )
        .await;
        let lease = outbox.lease(&me, &first).await;
        assert_eq!(outbox.seqs(&lease.ids).await, [1]);
        assert_eq!(taken(&outbox, &other, &take_in_order(10)).await, [3]);
        outbox.settle_all(&me, &lease, Settlement::Release).await;
        assert_eq!(taken(&outbox, &other, &take_in_order(10)).await, [1, 2]);
    }
}

#[tokio::test]
async fn a_dead_head_holds_its_key_or_lets_it_go_on() {
    for hold in [true, false] {
        let outbox = Outbox::new().await;
        let me = outbox.relay().await;
        rows(
            &outbox,
            &[("k", FRESH, 0), ("k", FRESH, 0), ("cold", FRESH, 0)],
        )
        .await;
        let claim = Claim {
            chain: 1,
            ..take_in_order(1)
        };
        let lease = outbox.lease(&me, &claim).await;
        let dead = Settle {
            hold,
            ..verdict(lease.id, lease.ids[0], Settlement::Dead(Reason::Rejected))
        };
        outbox.settle(&me, &[dead]).await;
        let expected: &[i64] = if hold { &[3] } else { &[2, 3] };
        assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, expected);
        outbox
            .run("delete from outbox.held_keys; delete from outbox.leases")
            .await;
        assert_eq!(taken(&outbox, &me, &take_in_order(10)).await, [2, 3]);
    }
}

#[tokio::test]
async fn rows_without_a_key_have_no_order() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(
        &outbox,
        &[
            ("", LATER, 1),
            ("", FRESH, 0),
            ("", "now()", 1),
            ("", LATER, 0),
            ("", FRESH, 0),
        ],
    )
    .await;
    assert_eq!(taken(&outbox, &me, &take_in_order(2)).await, [2, 3]);
    assert_eq!(taken(&outbox, &me, &take_in_order(2)).await, [5]);
}

#[tokio::test]
async fn a_key_that_a_settle_opened_is_handed_to_the_next_claim() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    rows(
        &outbox,
        &[("k", FRESH, 0), ("k", FRESH, 0), ("k", FRESH, 0)],
    )
    .await;
    let one = Claim {
        chain: 1,
        ..take_in_order(10)
    };
    let first = outbox.claim(&me, &one).await;
    let lease = first.lease.unwrap();
    assert_eq!(outbox.seqs(&lease.ids).await, [1]);
    let above = Claim {
        floors: first.floors.unwrap(),
        ..one
    };
    outbox.settle_all(&me, &lease, Settlement::Delivered).await;
    // The floor stands above the key's rows: they were passed over.
    let claimed = outbox.claim(&me, &above).await;
    assert!(claimed.lease.is_none() && claimed.dry);
    let keys = ["k".to_owned(), "unknown".to_owned(), "k".to_owned()];
    let handed = Claim {
        open_keys: &keys,
        ..above.clone()
    };
    let lease = outbox.lease(&me, &handed).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [2]);
    // A head that failed is not sent early because its key was named.
    let retry = Settlement::Retry(Duration::from_secs(3600));
    outbox.settle_all(&me, &lease, retry).await;
    assert!(outbox.claim(&me, &handed).await.lease.is_none());
    // Nor is one whose key another relay has by now.
    outbox
        .run("update outbox.messages set due_at = now()")
        .await;
    outbox.lease(&outbox.relay().await, &one).await;
    assert!(outbox.claim(&me, &handed).await.lease.is_none());
}

#[tokio::test]
async fn more_keys_than_the_limit_are_not_forgotten() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', 'k' || n % 100 from generate_series(1, 300) n")
        .await;
    let mut claim = Claim {
        chain: 1,
        ..take_in_order(7)
    };
    let mut heads = Vec::new();
    loop {
        let claimed = outbox.claim(&me, &claim).await;
        claim.floors = claimed.floors.unwrap();
        heads.extend(match claimed.lease {
            Some(lease) => outbox.seqs(&lease.ids).await,
            None => Vec::new(),
        });
        if claimed.dry {
            break;
        }
    }
    heads.sort_unstable();
    assert_eq!(heads, (1..=100).collect::<Vec<i64>>());
}
