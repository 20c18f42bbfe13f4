//! Replays and discards of many: what a filter means, and how a job gets on.
use outbox_relay::store::{Filter, Mandate, Progress, Verb};

use super::{bury, deliver};
use crate::{outbox::Outbox, support::rows::mandate};

pub(super) const REPLAY: Verb = Verb::Replay {
    delivered: false,
    new_key: false,
    rate: None,
};

/// Lets all pass.
pub(super) fn all() -> Filter {
    Filter::default()
}

/// Does all pieces of a job, and says how many there were.
pub(super) async fn finish(outbox: &Outbox, job: i64, limit: i32) -> (Progress, i32) {
    let mut pieces = 0;
    loop {
        let progress = outbox.store.run_job(job, limit).await.unwrap();
        pieces += 1;
        if progress.state != "running" {
            return (progress, pieces);
        }
        assert!(pieces < 10_000, "{progress:?}");
    }
}

/// Dead letters as they come: of three topics, two endpoints, several reasons.
pub(super) async fn dead(outbox: &Outbox, rows: i32) {
    let insert = format!(
        "insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size,
             status, topic, endpoint, reason, key, payload, last_error)
         select gen_random_uuid(), '', '2026-01-02 00:00:00+00'::timestamptz - make_interval(secs => n), now(), n, 3, 0, 0, 0, 4,
                case n % 2 when 0 then 422 end, (array['order.made', 'order.paid', 'cart'])[1 + n % 3], (array['a', 'b'])[1 + n % 2],
                (array['rejected', 'attempts'])[1 + n % 2], 'k' || n % 5, to_json(n), case n % 4 when 0 then 'Connection REFUSED by 10.0.0.1' else 'status 422' end
           from generate_series(1, {rows}) n"
    );
    outbox.run(&insert).await;
}

#[tokio::test]
async fn a_filter_means_the_same_counted_replayed_and_discarded() {
    let outbox = Outbox::new().await;
    dead(&outbox, 120).await;
    let some = |text: &str| Some(text.to_owned());
    let cases = [
        (all(), "true"),
        (
            Filter {
                topic: some("order.made"),
                ..all()
            },
            "topic = 'order.made'",
        ),
        (
            Filter {
                topic: some("order.*"),
                ..all()
            },
            "topic like 'order.%'",
        ),
        (
            Filter {
                topic: some("order"),
                ..all()
            },
            "false",
        ),
        (
            Filter {
                topic: some("%"),
                ..all()
            },
            "false",
        ),
        (
            Filter {
                endpoint: some("a"),
                key: some("k3"),
                ..all()
            },
            "endpoint = 'a' and key = 'k3'",
        ),
        (
            Filter {
                reason: some("attempts"),
                ..all()
            },
            "reason = 'attempts'",
        ),
        (
            Filter {
                status: Some(422),
                ..all()
            },
            "status = 422",
        ),
        (
            Filter {
                error: some("refused BY"),
                ..all()
            },
            "last_error like '%REFUSED%'",
        ),
        (
            Filter {
                since: some("2026-01-01 23:59:00+00"),
                ..all()
            },
            "seq <= 60",
        ),
        (
            Filter {
                since: some("2026-01-01 23:59:00+00"),
                until: some("2026-01-01 23:59:30+00"),
                ..all()
            },
            "seq between 31 and 60",
        ),
    ];
    for (filter, condition) in cases {
        let want = outbox
            .count(&format!("outbox.dead_letters where {condition}"))
            .await;
        let counted = outbox.store.matching(REPLAY, &filter).await.unwrap();
        let count: i64 = counted.iter().map(|kind| kind.messages).sum();
        assert_eq!(count, want, "{filter:?}");
        for verb in [REPLAY, Verb::Discard] {
            let before = outbox.count("outbox.dead_letters").await;
            let mut outer = outbox.database.connect().await;
            let kept = outer.transaction().await.unwrap();
            kept.batch_execute(
                "create table if not exists public.kept as select * from outbox.dead_letters",
            )
            .await
            .unwrap();
            kept.commit().await.unwrap();
            let job = outbox
                .store
                .start_job(verb, &filter, Mandate::default(), false)
                .await
                .unwrap();
            let (end, _) = finish(&outbox, job, 7).await;
            assert_eq!((end.state.as_str(), end.pending), ("done", 0), "{filter:?}");
            assert_eq!(before - end.done, outbox.count("outbox.dead_letters").await);
            assert_eq!(end.done, want, "{filter:?}");
            outbox.run("delete from outbox.messages; delete from outbox.dead_letters; insert into outbox.dead_letters select * from public.kept").await;
        }
        outbox.run("drop table public.kept").await;
    }
}

#[tokio::test]
async fn a_job_goes_on_where_it_stopped_and_keeps_who_and_why() {
    let outbox = Outbox::new().await;
    dead(&outbox, 50).await;
    let job = outbox
        .store
        .start_job(REPLAY, &all(), mandate("receiver fixed", "ann"), false)
        .await
        .unwrap();
    let first = outbox.store.run_job(job, 20).await.unwrap();
    assert_eq!((first.state.as_str(), first.done), ("running", 20));
    // Somebody dies in the middle of a piece: nothing of it happened.
    let other = outbox.database.connect().await;
    other
        .batch_execute(&format!("begin; select outbox.run_job({job}, 20)"))
        .await
        .unwrap();
    let busy = outbox.store.run_job(job, 20).await.unwrap();
    assert_eq!((busy.state.as_str(), busy.done), ("busy", 20));
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(outbox.count("outbox.messages").await, 20);
    let (end, _) = finish(&outbox, job, 20).await;
    assert_eq!((end.state.as_str(), end.done, end.pending), ("done", 50, 0));
    assert_eq!(outbox.count("outbox.messages").await, 50);
    let told = outbox.count("outbox.attempts where outcome = 'replayed' and relay = 'ann' and reason = 'receiver fixed'").await;
    assert_eq!(told, 50);
    let jobs = outbox.store.jobs(Some(job), 1).await.unwrap();
    assert_eq!(
        (
            jobs[0].started_by.as_str(),
            jobs[0].why.as_deref(),
            jobs[0].done
        ),
        ("ann", Some("receiver fixed"), 50)
    );
    assert!(jobs[0].finished_at.is_some());
    // What is done stays done.
    assert_eq!(outbox.store.run_job(job, 20).await.unwrap().state, "done");
    assert_eq!(outbox.store.abort_job(job).await.unwrap(), Some(false));
}

#[tokio::test]
async fn what_dies_again_is_not_replayed_by_the_same_job() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for _ in 0..10 {
        outbox.insert("null, null::timestamptz").await;
    }
    bury(&outbox, &me, false).await;
    let job = outbox
        .store
        .start_job(REPLAY, &all(), Mandate::default(), false)
        .await
        .unwrap();
    outbox.store.run_job(job, 5).await.unwrap();
    // A receiver that is still broken.
    let lease = outbox.lease(&me, &crate::outbox::take(100)).await;
    let settles = lease.ids.iter().map(|id| {
        crate::outbox::verdict(
            lease.id,
            *id,
            outbox_relay::message::Settlement::Dead(outbox_relay::message::Reason::Rejected),
        )
    });
    let settles = super::with_generations(&outbox, settles.collect()).await;
    assert_eq!(outbox.settle(&me, &settles).await.settled.len(), 5);
    let (end, _) = finish(&outbox, job, 5).await;
    assert_eq!(end.done, 10);
    assert_eq!(
        outbox
            .count("outbox.dead_letters where generation = 1")
            .await,
        5
    );
}

#[tokio::test]
async fn a_rate_is_kept_and_an_abort_ends_it() {
    let outbox = Outbox::new().await;
    dead(&outbox, 100).await;
    let slow = Verb::Replay {
        delivered: false,
        new_key: false,
        rate: Some(10.0),
    };
    let job = outbox
        .store
        .start_job(slow, &all(), Mandate::default(), false)
        .await
        .unwrap();
    let first = outbox.store.run_job(job, 500).await.unwrap();
    assert_eq!(first.done, 2, "a fifth of a second's worth");
    assert!(first.wait > 0.1 && first.wait <= 0.2, "{first:?}");
    outbox
        .run("update outbox.jobs set next_at = now() + interval '1 hour'")
        .await;
    let waits = outbox.store.run_job(job, 500).await.unwrap();
    assert_eq!((waits.state.as_str(), waits.done), ("running", 2));
    assert!(waits.wait > 3500.0);
    assert_eq!(outbox.store.abort_job(job).await.unwrap(), Some(true));
    assert_eq!(
        outbox.store.run_job(job, 500).await.unwrap().state,
        "aborted"
    );
    assert_eq!(outbox.count("outbox.messages").await, 2);
    assert_eq!(outbox.store.abort_job(job + 1).await.unwrap(), None);
    assert_eq!(
        outbox.store.run_job(job + 1, 500).await.unwrap().state,
        "missing"
    );
}

#[tokio::test]
async fn what_was_delivered_more_than_once_is_sent_again_once() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for _ in 0..5 {
        outbox.insert("'k', null::timestamptz").await;
    }
    deliver(&outbox, &me).await;
    let delivered = Verb::Replay {
        delivered: true,
        new_key: false,
        rate: None,
    };
    for round in 1..4_i64 {
        let job = outbox
            .store
            .start_job(delivered, &all(), Mandate::default(), false)
            .await
            .unwrap();
        let mut seen = 0;
        // Each piece is delivered before the next one.
        loop {
            let progress = outbox.store.run_job(job, 2).await.unwrap();
            if outbox.count("outbox.messages").await > 0 {
                deliver(&outbox, &me).await;
            }
            seen += 1;
            assert!(seen < 100);
            if progress.state == "done" {
                assert_eq!((progress.done, progress.pending), (5, 0));
                break;
            }
        }
        assert_eq!(outbox.count("outbox.delivered").await, 5 * (round + 1));
    }
}

#[tokio::test]
async fn what_can_not_be_meant_is_refused_with_the_reason() {
    let outbox = Outbox::new().await;
    let rejected = Filter {
        reason: Some("rejected".into()),
        ..all()
    };
    let delivered = Verb::Replay {
        delivered: true,
        new_key: false,
        rate: None,
    };
    let stopped = Verb::Replay {
        delivered: false,
        new_key: false,
        rate: Some(0.0),
    };
    let bad_time = Filter {
        since: Some("yesterdayish".into()),
        ..all()
    };
    for (verb, filter, says) in [
        (
            delivered,
            &rejected,
            "what was delivered has no reason, status or error",
        ),
        (
            stopped,
            &all(),
            "the rate must be from 0.001 to 1000000 messages in a second, not 0",
        ),
        (
            REPLAY,
            &bad_time,
            "invalid input syntax for type timestamp with time zone: \"yesterdayish\"",
        ),
    ] {
        let error = outbox
            .store
            .start_job(verb, filter, Mandate::default(), false)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(outbox.count("outbox.jobs").await, 0);
}
