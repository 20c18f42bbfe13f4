//! A hot key keeps nobody waiting: neither those behind its rows nor those that look for them.

use std::time::Duration;

use outbox_relay::store::Claim;
use tokio::time::Instant;

use crate::outbox::{Outbox, take_in_order};

/// 50,000 rows of one key that is on its way, and ten cold keys behind them.
async fn hot(due: &str) -> Outbox {
    let outbox = Outbox::new().await;
    outbox
        .run(&format!(
            "insert into outbox.messages (topic, key, due_at) select 't', 'hot', {due} from generate_series(1, 50000);
             insert into outbox.messages (topic, key, due_at) select 't', 'cold' || n, {due} from generate_series(1, 10) n"
        ))
        .await;
    let other = outbox.relay().await;
    let claim = Claim {
        chain: 1,
        ..take_in_order(1)
    };
    let lease = outbox.lease(&other, &claim).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [1]);
    outbox
}

async fn cold_keys_are_reached(outbox: &Outbox) {
    let me = outbox.relay().await;
    let mut claim = take_in_order(100);
    let (mut claims, mut slowest, mut cold) = (0, Duration::ZERO, 0);
    while cold < 10 {
        let start = Instant::now();
        let claimed = outbox.claim(&me, &claim).await;
        slowest = slowest.max(start.elapsed());
        claims += 1;
        assert!(
            !claimed.dry || claimed.lease.is_some(),
            "dry after {claims} claims"
        );
        cold += claimed.lease.map_or(0, |lease| lease.ids.len());
        claim.floors = claimed.floors.unwrap();
        assert!(
            claims <= 130,
            "the cold keys were not reached in {claims} claims"
        );
    }
    assert!(
        slowest < Duration::from_secs(1),
        "one claim took {slowest:?}"
    );
    // What was passed over once is not read again.
    let start = Instant::now();
    for _ in 0..20 {
        assert!(outbox.claim(&me, &claim).await.lease.is_none());
    }
    let each = start.elapsed() / 20;
    assert!(
        each < Duration::from_millis(100),
        "an empty claim took {each:?}"
    );
}

#[tokio::test]
async fn fifty_thousand_fresh_rows_starve_no_cold_key() {
    cold_keys_are_reached(&hot("null::timestamptz").await).await;
}

#[tokio::test]
async fn fifty_thousand_rows_due_at_one_moment_starve_no_cold_key() {
    cold_keys_are_reached(&hot("now()").await).await;
}
