//! The pieces of a job: whom they meet, and how large they are.
use outbox_relay::store::{Filter, Mandate, Verb};
use uuid::Uuid;

use super::jobs::{REPLAY, all, dead, finish};
use crate::outbox::Outbox;

#[tokio::test]
async fn what_died_anew_of_something_else_is_not_discarded() {
    let outbox = Outbox::new().await;
    dead(&outbox, 2).await;
    let other = outbox.database.connect().await;
    outbox
        .run("insert into outbox.lanes (topic) select distinct topic from outbox.dead_letters")
        .await;
    other
        .batch_execute("begin; select from outbox.lanes for update")
        .await
        .unwrap();
    let job = outbox
        .store
        .start_job(Verb::Discard, &all(), Mandate::default(), false)
        .await
        .unwrap();
    let store = outbox.store.clone();
    let mut piece = tokio::task::JoinSet::new();
    piece.spawn(async move { store.run_job(job, 100).await });
    outbox.blocked("outbox.run_job").await;
    // It was replayed meanwhile, and died again.
    outbox
        .run("update outbox.dead_letters set generation = 1, died_at = now() where seq = 2")
        .await;
    other.batch_execute("commit").await.unwrap();
    let progress = piece.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!((progress.done, progress.pending), (1, 1));
    let left: Vec<i64> = outbox.all("select seq from outbox.dead_letters", &[]).await;
    assert_eq!(left, [2]);
}

#[tokio::test]
async fn an_application_that_uses_ids_again_is_never_the_one_to_be_chosen() {
    let outbox = Outbox::new().await;
    dead(&outbox, 30).await;
    let ids: Vec<Uuid> = outbox
        .all("select id from outbox.dead_letters order by died_at", &[])
        .await;
    let shop = outbox.database.connect().await;
    let insert = "insert into outbox.messages (id, topic) values ($1, 'cart')";
    shop.batch_execute("begin").await.unwrap();
    shop.execute(insert, &[&ids[20]]).await.unwrap();
    let job = outbox
        .store
        .start_job(REPLAY, &all(), Mandate::default(), false)
        .await
        .unwrap();
    let store = outbox.store.clone();
    let mut replay = tokio::task::JoinSet::new();
    replay.spawn(async move { store.run_job(job, 100).await });
    outbox.blocked("outbox.run_job").await;
    // In the other order.
    let inserted = shop.execute(insert, &[&ids[10]]).await;
    assert!(inserted.is_ok(), "{inserted:?}");
    let first = replay.join_next().await.unwrap().unwrap().unwrap();
    assert!(first.done >= 1 && first.state == "running", "{first:?}");
    // What is behind what it could not have comes with the next pieces, while the application goes on as it likes.
    let mut pieces = 0;
    let progress = loop {
        let progress = outbox.store.run_job(job, 100).await.unwrap();
        pieces += 1;
        assert!(pieces < 20, "{progress:?}");
        if progress.state == "done" {
            break progress;
        }
    };
    shop.batch_execute("commit").await.unwrap();
    assert_eq!((progress.done, progress.pending), (28, 2));
    let shops = outbox.count("outbox.messages where payload is null").await;
    assert_eq!(
        shops, progress.pending,
        "what the application inserted is there"
    );
    assert_eq!(outbox.count("outbox.dead_letters").await, progress.pending);
}

#[tokio::test]
async fn a_piece_is_bounded_in_bytes() {
    let outbox = Outbox::new().await;
    dead(&outbox, 5).await;
    outbox
        .run("update outbox.dead_letters set payload = to_json(repeat('x', 12000000)), size = 12000002")
        .await;
    let job = outbox
        .store
        .start_job(REPLAY, &all(), Mandate::default(), false)
        .await
        .unwrap();
    let mut done = Vec::new();
    loop {
        let progress = outbox.store.run_job(job, 100).await.unwrap();
        done.push(progress.done);
        if progress.state == "done" {
            break;
        }
    }
    assert_eq!(done, [2, 4, 5, 5]);
}

#[tokio::test]
async fn few_of_many_are_found_piece_by_piece() {
    let outbox = Outbox::new().await;
    dead(&outbox, 5000).await;
    outbox
        .run("update outbox.dead_letters set endpoint = 'rare' where seq in (10, 2500, 4990)")
        .await;
    let rare = Filter {
        endpoint: Some("rare".into()),
        ..all()
    };
    let job = outbox
        .store
        .start_job(Verb::Discard, &rare, Mandate::default(), false)
        .await
        .unwrap();
    let (end, pieces) = finish(&outbox, job, 10).await;
    assert_eq!((end.state.as_str(), end.done), ("done", 3));
    assert!((4..12).contains(&pieces), "{pieces}");
}

#[tokio::test]
async fn of_what_was_delivered_the_same_is_counted_as_is_sent() {
    let outbox = Outbox::new().await;
    let rows = "insert into outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size, topic, lane_endpoint, endpoint)
                select clock_timestamp() - v.ago * interval '1 second', now(), v.id::uuid, v.seq, 1, 0, v.generation, 0, 't', '', 'e'
                  from (values ('00000000-0000-4000-8000-000000000001', 1, 0, 5), ('00000000-0000-4000-8000-000000000001', 2, 1, 3),
                               ('00000000-0000-4000-8000-000000000001', 3, 2, 1), ('00000000-0000-4000-8000-000000000002', 4, 0, 4),
                               ('00000000-0000-4000-8000-000000000003', 5, 0, 4)) v (id, seq, generation, ago)";
    outbox.run(rows).await;
    outbox
        .run("insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason)
              values ('00000000-0000-4000-8000-000000000002', '', now(), now(), 9, 1, 0, 0, 1, 0, 't', 'e', 'rejected')")
        .await;
    let delivered = Verb::Replay {
        delivered: true,
        new_key: false,
        rate: None,
    };
    let earlier = Filter {
        until: Some("ago 2 s".into()),
        ..all()
    };
    for (filter, want) in [(earlier, 2), (all(), 2)] {
        let counted = outbox.store.matching(delivered, &filter).await.unwrap();
        let count: i64 = counted.iter().map(|kind| kind.messages).sum();
        assert_eq!(count, want, "{filter:?}");
        let job = outbox
            .store
            .start_job(delivered, &filter, Mandate::default(), false)
            .await
            .unwrap();
        let (end, _) = finish(&outbox, job, 1).await;
        assert_eq!((end.done, end.pending), (want, 0), "{filter:?}");
        outbox.run("delete from outbox.messages").await;
    }
}

#[tokio::test]
async fn pieces_of_no_size_are_refused() {
    let outbox = Outbox::new().await;
    for limit in [0, -1, 10_001] {
        let error = outbox.store.run_job(1, limit).await.unwrap_err();
        let says = format!("a piece has from 1 to 10000 messages, not {limit}");
        assert!(error.to_string().contains(&says), "{error}");
    }
}
