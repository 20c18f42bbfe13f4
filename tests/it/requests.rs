//! Requests over HTTP are remembered for their time, and forgotten in pieces.
use std::time::Duration;

use outbox_relay::{
    maintenance,
    store::{Accepted, History, Requested, Retention, Sent},
};

use crate::{
    outbox::Outbox,
    support::{
        eventually,
        rows::{SOON, count, one},
    },
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn requests(outbox: &Outbox, old: i32, new: i32) {
    outbox
        .run(&format!(
            "insert into outbox.requests (created_at, id, caller, key, digest)
             select now() - interval '2 days', gen_random_uuid(), 'c', 'old ' || n, ''::bytea from generate_series(1, {old}) n
             union all
             select now() - interval '12 hours', gen_random_uuid(), 'c', 'new ' || n, '' from generate_series(1, {new}) n"
        ))
        .await;
}

#[tokio::test]
async fn those_past_retention_are_forgotten_in_pieces_the_oldest_first() {
    let outbox = Outbox::new().await;
    requests(&outbox, 12, 3).await;
    let forget = || outbox.store.forget_requests(DAY, 5);
    let first = "select key from outbox.requests where key = 'old 1'";
    // Somebody else is at one of them.
    let other = outbox.database.connect().await;
    other
        .batch_execute(&format!("begin; {first} for update"))
        .await
        .unwrap();
    let mut forgotten = Vec::new();
    for _ in 0..3 {
        forgotten.push(forget().await.unwrap());
    }
    assert_eq!(forgotten, [5, 5, 1]);
    assert_eq!(one::<String>(&outbox.client, first).await, "old 1");
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(forget().await.unwrap(), 1);
    assert_eq!(forget().await.unwrap(), 0);
    assert_eq!(
        count(&outbox.client, "requests where key like 'new%'").await,
        3
    );
}

#[tokio::test]
async fn the_relays_round_forgets_them() {
    let outbox = Outbox::new().await;
    requests(&outbox, 5001, 1).await;
    let config = maintenance::Config {
        sagas: Duration::from_secs(3600),
        keep: Retention {
            attempts: 30 * DAY,
            successes: 30 * DAY,
            delivered: DAY,
        },
        requests: DAY,
        record: History::All,
    };
    maintenance::run_once(&outbox.store, &config).await.unwrap();
    assert_eq!(count(&outbox.client, "requests").await, 1);
}

#[tokio::test]
async fn a_key_that_was_forgotten_is_a_new_one() {
    let outbox = Outbox::new().await;
    let send = async || {
        let requested = Requested {
            caller: "c",
            key: Some("k"),
            digest: b"d",
        };
        let sent = Sent {
            topic: "t",
            ..Sent::default()
        };
        match outbox.store.accept(requested, sent).await.unwrap() {
            Accepted::Message(id) => id,
            Accepted::OtherRequest => panic!("it is the same"),
        }
    };
    let first = send().await;
    assert_eq!(send().await, first);
    // Whoever sends waits for the one who forgets.
    for (end, same) in [("rollback", true), ("commit", false)] {
        let other = outbox.database.connect().await;
        other
            .batch_execute("begin; delete from outbox.requests")
            .await
            .unwrap();
        let end = async {
            let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            let waiting = async || one::<i64>(&outbox.client, waits).await == 1;
            eventually("the sender waits", SOON, waiting).await;
            other.batch_execute(end).await.unwrap();
        };
        let (sent, ()) = tokio::join!(send(), end);
        assert_eq!(sent == first, same);
    }
    assert_eq!(count(&outbox.client, "messages").await, 2);
}
