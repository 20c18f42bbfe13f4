//! A message that relays died with is tried alone, so that the one that kills is found and its neighbours are not punished.

use outbox_relay::{
    message::Settlement,
    store::{Claim, ClaimState},
};

use crate::outbox::{Outbox, take, take_in_order, verdict};

/// Inserts due rows as a reap leaves them: all at one moment.
async fn suspects(outbox: &Outbox, rows: i32, key: &str) {
    outbox
        .run(&format!(
            "insert into outbox.messages (topic, key, due_at, lost) select 't', {key}, '2026-01-01', 2 from generate_series(1, {rows}) n"
        ))
        .await;
}

#[tokio::test]
async fn a_suspect_goes_alone_and_one_at_a_time_per_relay() {
    for claim in [take(10), take_in_order(10)] {
        let outbox = Outbox::new().await;
        let (me, other) = (outbox.relay().await, outbox.relay().await);
        suspects(&outbox, 3, "null").await;
        outbox
            .run("insert into outbox.messages (topic) select 't' from generate_series(1, 5)")
            .await;

        let first = outbox.lease(&me, &claim).await;
        assert_eq!(first.ids.len(), 1);
        let alone = "outbox.leases where alone and cardinality(ids) = 1 and keys = '{\"\"}'";
        assert_eq!(outbox.count(alone).await, 1);
        // While it is on its way this relay does the others' work, and another relay may take the next one.
        assert_eq!(outbox.lease(&me, &claim).await.ids.len(), 5);
        assert_eq!(outbox.claim(&me, &claim).await.state, ClaimState::Empty);
        assert_eq!(outbox.lease(&other, &claim).await.ids.len(), 1);
        assert_eq!(outbox.claim(&other, &claim).await.state, ClaimState::Empty);

        outbox.settle_all(&me, &first, Settlement::Delivered).await;
        assert_eq!(outbox.lease(&me, &claim).await.ids.len(), 1);
        assert_eq!(outbox.count("outbox.leases where alone").await, 2);
    }
}

#[tokio::test]
async fn one_loss_is_no_suspicion() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    suspects(&outbox, 3, "null").await;
    outbox.run("update outbox.messages set lost = 1").await;
    assert_eq!(outbox.lease(&me, &take(10)).await.ids.len(), 3);
}

#[tokio::test]
async fn a_full_window_of_suspects_starves_nobody() {
    for (claim, key) in [
        (take(10), "null"),
        (take_in_order(10), "null"),
        (take_in_order(10), "'k' || n"),
    ] {
        let outbox = Outbox::new().await;
        let me = outbox.relay().await;
        // More than any window holds, all due at one moment: a relay died with many in flight.
        suspects(&outbox, 1000, key).await;
        outbox.insert("null, '2026-01-01'").await;
        outbox.insert("null, now() - interval '1 minute'").await;
        outbox.insert("null, null::timestamptz").await;
        assert_eq!(outbox.lease(&me, &claim).await.ids.len(), 1, "{key}");
        assert_eq!(outbox.lease(&me, &claim).await.ids.len(), 3, "{key}");
        // And then there is nothing for this relay to ask for in a hurry.
        let mut next = claim.clone();
        let mut rounds = 0;
        loop {
            let claimed = outbox.claim(&me, &next).await;
            assert_eq!(claimed.state, ClaimState::Empty);
            next = Claim {
                floors: claimed.floors.unwrap(),
                ..claim.clone()
            };
            if claimed.dry {
                break;
            }
            rounds += 1;
            assert!(
                rounds < 10,
                "never dry: a relay would claim without a pause"
            );
        }
    }
}

#[tokio::test]
async fn a_suspect_that_is_the_head_of_its_key_goes_alone_and_its_key_waits() {
    let outbox = Outbox::new().await;
    let (me, other) = (outbox.relay().await, outbox.relay().await);
    suspects(&outbox, 1, "'k'").await;
    outbox.insert("'k', null::timestamptz").await;
    outbox.insert("'cold', null::timestamptz").await;
    let first = outbox.lease(&me, &take_in_order(10)).await;
    assert_eq!(outbox.seqs(&first.ids).await, [1]);
    let cold = outbox.lease(&other, &take_in_order(10)).await;
    assert_eq!(outbox.seqs(&cold.ids).await, [3]);
    let settle = verdict(first.id, first.ids[0], Settlement::Delivered);
    outbox.settle(&me, &[settle]).await;
    let next = outbox.lease(&other, &take_in_order(10)).await;
    assert_eq!(outbox.seqs(&next.ids).await, [2]);
}

#[tokio::test]
async fn a_suspect_in_the_middle_ends_the_chain_before_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    suspects(&outbox, 1, "'k'").await;
    outbox.insert("'k', null::timestamptz").await;
    let lease = outbox.lease(&me, &take_in_order(10)).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [1]);
}
