//! What a dead relay held is due again at once; what a living one holds is not touched.

use std::time::Duration;

use outbox_relay::{
    message::Settlement,
    store::{ClaimState, Floors},
};
use tokio::task::JoinSet;

use crate::outbox::{Outbox, take, take_in_order, verdict};

async fn with_rows(rows: i32) -> Outbox {
    let outbox = Outbox::new().await;
    outbox
        .run(&format!(
            "insert into outbox.messages (topic, key) select 't', 'k' || n from generate_series(1, {rows}) n"
        ))
        .await;
    outbox
}

#[tokio::test]
async fn one_that_beat_since_it_was_watched_lives() {
    let outbox = with_rows(1).await;
    let me = outbox.relay().await;
    outbox.lease(&me, &take(1)).await;
    assert_eq!(outbox.store.beat(me.relay).await.unwrap().unwrap().0, 1);
    let reaped = outbox.store.reap(me.relay, 0, 3).await.unwrap();
    assert_eq!((reaped.reaped, reaped.lost, reaped.dead), (false, 0, 0));
    assert_eq!(outbox.count("outbox.leases").await, 1);
    assert_eq!(outbox.store.beat(me.relay).await.unwrap().unwrap().0, 2);
}

#[tokio::test]
async fn what_a_dead_relay_held_is_due_at_once_and_counted_as_lost() {
    let outbox = with_rows(5).await;
    let (dead, other) = (outbox.relay().await, outbox.relay().await);
    outbox.lease(&dead, &take(2)).await;
    outbox.lease(&dead, &take(2)).await;
    outbox.lease(&other, &take(2)).await;
    let peers = outbox.store.beat(other.relay).await.unwrap().unwrap().1;
    assert_eq!(
        (peers.len(), peers[0].relay, peers[0].beat),
        (1, dead.relay, 0)
    );
    assert_eq!(peers[0].lease, Duration::from_secs(15));

    let reaped = outbox.store.reap(dead.relay, 0, 3).await.unwrap();
    assert_eq!((reaped.reaped, reaped.lost, reaped.dead), (true, 4, 0));
    let due = "outbox.messages where lost = 1 and attempts = 0 and due_at <= clock_timestamp() and last_error = 'relay a relay died with it'";
    assert_eq!(outbox.count(due).await, 4);
    let told = "outbox.attempts where outcome = 'lost' and settlement = 'retry' and attempt = 1 and status is null and endpoint = 'e' and relay = 'a relay'";
    assert_eq!(outbox.count(told).await, 4);
    assert_eq!(outbox.count("outbox.leases").await, 1, "the other's");
    assert_eq!(outbox.count("outbox.relays").await, 1);
    assert_eq!(outbox.store.beat(dead.relay).await.unwrap(), None);
    assert_eq!(outbox.lease(&other, &take(9)).await.ids.len(), 4);

    let again = outbox.store.reap(dead.relay, 0, 3).await.unwrap();
    assert!(!again.reaped);
    assert_eq!(outbox.count("outbox.attempts").await, 4);
}

#[tokio::test]
async fn a_message_that_lost_too_many_relays_is_dead() {
    let outbox = with_rows(1).await;
    for death in 1..=3 {
        let dead = outbox.relay().await;
        outbox.lease(&dead, &take(1)).await;
        let reaped = outbox.store.reap(dead.relay, 0, 2).await.unwrap();
        assert_eq!((reaped.lost, reaped.dead), (1, i32::from(death == 3)));
    }
    assert_eq!(outbox.count("outbox.messages").await, 0);
    let kept = "outbox.dead_letters where reason = 'lost' and lost = 3 and attempts = 0 and endpoint = 'e' and key = 'k1'";
    assert_eq!(outbox.count(kept).await, 1);
    let told = "outbox.attempts where outcome = 'lost' and settlement = 'dead' and reason = 'lost' and attempt = 3";
    assert_eq!(outbox.count(told).await, 1);
}

#[tokio::test]
async fn history_that_cannot_be_written_never_fails_a_reap() {
    let outbox = with_rows(2).await;
    outbox
        .run("update outbox.messages set lost = 3, due_at = now() where seq = 1")
        .await;
    outbox.drop_partitions("outbox.attempts").await;
    let dead = outbox.relay().await;
    outbox.lease(&dead, &take(2)).await;
    outbox.lease(&dead, &take(2)).await;
    let reaped = outbox.store.reap(dead.relay, 0, 3).await.unwrap();
    assert_eq!((reaped.reaped, reaped.lost, reaped.dead), (true, 2, 1));
    assert_eq!(outbox.count("outbox.dead_letters").await, 1);
    assert_eq!(outbox.count("outbox.messages where lost = 1").await, 1);
}

#[tokio::test]
async fn no_lease_appears_behind_a_reap() {
    let outbox = with_rows(2).await;
    let me = outbox.relay().await;
    outbox.lease(&me, &take(1)).await;
    // A claim that pauses before its commit.
    let slow = outbox.database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    slow.query_one(
        "select lease from outbox.claim($1, 0, $2, 't', '', 'e', false, false, 9, 9, 9, 0, null, 0, 0, '{}', null, 1, 1, 1, 0)",
        &[&me.relay, &me.epoch],
    )
    .await
    .unwrap();

    let mut reaper = JoinSet::new();
    let store = outbox.store.clone();
    reaper.spawn(async move { store.reap(me.relay, 0, 3).await.unwrap() });
    outbox.blocked("outbox.reap(").await;
    slow.batch_execute("commit").await.unwrap();
    let reaped = reaper.join_next().await.unwrap().unwrap();
    assert_eq!((reaped.reaped, reaped.lost), (true, 2));
    assert_eq!(outbox.count("outbox.leases").await, 0);
    assert_eq!(
        outbox.claim(&me, &take(1)).await.state,
        ClaimState::RelayGone
    );
}

#[tokio::test]
async fn a_claim_behind_a_reap_finds_its_relay_gone() {
    let outbox = with_rows(1).await;
    let me = outbox.relay().await;
    let reaper = outbox.database.connect().await;
    reaper.batch_execute("begin").await.unwrap();
    reaper
        .query_one("select reaped from outbox.reap($1, 0, 3)", &[&me.relay])
        .await
        .unwrap();
    let mut claimer = JoinSet::new();
    let (store, relay) = (outbox.store.clone(), me.clone());
    claimer.spawn(async move { store.claim(&relay, &take(1)).await.unwrap() });
    outbox.blocked("outbox.claim(").await;
    reaper.batch_execute("commit").await.unwrap();
    let claimed = claimer.join_next().await.unwrap().unwrap();
    assert_eq!(claimed.state, ClaimState::RelayGone);
    assert!(claimed.lease.is_none());
}

#[tokio::test]
async fn a_beat_does_not_wait_for_a_claim() {
    let outbox = with_rows(1).await;
    let me = outbox.relay().await;
    let slow = outbox.database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    slow.query_one(
        "select lease from outbox.claim($1, 0, $2, 't', '', 'e', false, false, 9, 9, 9, 0, null, 0, 0, '{}', null, 1, 1, 1, 0)",
        &[&me.relay, &me.epoch],
    )
    .await
    .unwrap();
    assert_eq!(outbox.store.beat(me.relay).await.unwrap().unwrap().0, 1);
    slow.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn recover_gives_back_only_what_the_relay_does_not_know() {
    let outbox = with_rows(3).await;
    let (mut me, other) = (outbox.relay().await, outbox.relay().await);
    let known = outbox.lease(&me, &take(1)).await;
    outbox.lease(&me, &take(1)).await;
    let theirs = outbox.lease(&other, &take(1)).await;
    let before = "select m::text from outbox.messages m order by seq";
    let rows: Vec<String> = outbox.all(before, &[]).await;

    let session = outbox.store.recover(me.relay, &[known.id]).await.unwrap();
    assert_eq!(session, Some(1));
    let left: Vec<i64> = outbox
        .all("select lease from outbox.leases order by 1", &[])
        .await;
    assert_eq!(left, [known.id, theirs.id]);
    assert_eq!(outbox.all::<String>(before, &[]).await, rows, "untouched");
    assert_eq!(
        outbox.claim(&me, &take(1)).await.state,
        ClaimState::OtherSession
    );
    me.session = 1;
    assert_eq!(outbox.lease(&me, &take(9)).await.ids.len(), 1);
    // What it knows it may go on to settle.
    let settle = verdict(known.id, known.ids[0], Settlement::Delivered);
    assert_eq!(outbox.settle(&me, &[settle]).await.settled, known.ids);

    outbox.store.deregister(me.relay).await.unwrap();
    assert_eq!(outbox.store.recover(me.relay, &[]).await.unwrap(), None);
}

#[tokio::test]
async fn recover_waits_for_a_claim_that_still_runs() {
    let outbox = with_rows(1).await;
    let me = outbox.relay().await;
    let slow = outbox.database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    slow.query_one(
        "select lease from outbox.claim($1, 0, $2, 't', '', 'e', false, false, 9, 9, 9, 0, null, 0, 0, '{}', null, 1, 1, 1, 0)",
        &[&me.relay, &me.epoch],
    )
    .await
    .unwrap();
    let mut recovery = JoinSet::new();
    let store = outbox.store.clone();
    recovery.spawn(async move { store.recover(me.relay, &[]).await.unwrap() });
    outbox.blocked("outbox.recover(").await;
    slow.batch_execute("commit").await.unwrap();
    let session = recovery.join_next().await.unwrap().unwrap();
    assert_eq!(session, Some(1));
    assert_eq!(outbox.count("outbox.leases").await, 0);
}

#[tokio::test]
async fn deregister_gives_everything_back_untouched() {
    let outbox = with_rows(3).await;
    let (me, other) = (outbox.relay().await, outbox.relay().await);
    outbox.lease(&me, &take(1)).await;
    outbox.lease(&me, &take(1)).await;
    outbox.lease(&other, &take(1)).await;
    outbox.store.deregister(me.relay).await.unwrap();
    outbox.store.deregister(me.relay).await.unwrap();
    assert_eq!(
        outbox
            .count("outbox.messages where lost = 0 and attempts = 0 and due_at is null")
            .await,
        3
    );
    assert_eq!(outbox.count("outbox.leases").await, 1);
    assert_eq!(outbox.count("outbox.relays").await, 1);
    assert_eq!(outbox.count("outbox.attempts").await, 0);
    assert_eq!(outbox.lease(&other, &take(9)).await.ids.len(), 2);
}

#[tokio::test]
async fn the_order_of_a_key_survives_a_dead_relay() {
    let outbox = Outbox::new().await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', 'k' from generate_series(1, 4)")
        .await;
    let (dead, me) = (outbox.relay().await, outbox.relay().await);
    let lease = outbox.lease(&dead, &take_in_order(2)).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [1, 2]);
    outbox.store.reap(dead.relay, 0, 3).await.unwrap();
    let mut claim = take_in_order(10);
    claim.floors = Floors::default();
    let lease = outbox.lease(&me, &claim).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [1, 2, 3, 4]);
}
