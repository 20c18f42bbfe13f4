//! History and archive come in daily partitions: made ahead, dropped when their time is over, without stopping anybody.

use std::time::Duration;

use outbox_relay::store::{Partitions, Retention};

use crate::outbox::Outbox;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The partitions of both parents, as days from today.
async fn days(outbox: &Outbox, of: &str) -> Vec<i32> {
    outbox
        .all(
            "select to_date(right(c.relname, 8), 'YYYYMMDD') - (now() at time zone 'UTC')::date
               from pg_inherits i join pg_class c on c.oid = i.inhrelid
              where i.inhparent = $1::text::regclass order by 1",
            &[&of],
        )
        .await
}

/// Returns what was made and dropped.
async fn maintained(
    outbox: &Outbox,
    days: i32,
    attempts: Duration,
    delivered: Duration,
) -> (i32, i32) {
    let keep = Retention {
        attempts,
        successes: attempts,
        delivered,
    };
    let done = outbox.store.maintain_partitions(days, &keep).await.unwrap();
    (done.made, done.dropped)
}

/// Makes a partition of a day that is long past.
async fn old(outbox: &Outbox) {
    outbox
        .run(
            "create table outbox.attempts_20200101 partition of outbox.attempts for values from ('2020-01-01') to ('2020-01-02');
             create table outbox.delivered_20200101 partition of outbox.delivered for values from ('2020-01-01') to ('2020-01-02')",
        )
        .await;
}

#[tokio::test]
async fn a_week_is_there_from_the_first_day() {
    let outbox = Outbox::new().await;
    for of in ["outbox.attempts", "outbox.delivered"] {
        assert_eq!(days(&outbox, of).await, (0..=7).collect::<Vec<i32>>());
    }
    assert_eq!(maintained(&outbox, 7, DAY, DAY).await, (0, 0));
}

#[tokio::test]
async fn what_is_past_retention_goes_and_nothing_else() {
    let outbox = Outbox::new().await;
    old(&outbox).await;
    outbox
        .run(
            "insert into outbox.messages (topic, created_at) values ('t', '2020-01-01');
             insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason)
             values (gen_random_uuid(), '', '2020-01-01', '2020-01-01', 1, 0, 0, 0, 0, 0, 't', 'e', 'rejected')",
        )
        .await;
    let years = 100 * 365 * DAY;
    let kept = maintained(&outbox, 7, years, years).await;
    assert_eq!(kept, (0, 0));
    let archive = maintained(&outbox, 7, years, Duration::ZERO).await;
    assert_eq!(archive, (0, 1));
    let history = maintained(&outbox, 7, DAY, Duration::ZERO).await;
    assert_eq!(history, (0, 1));
    // Today's stays, with a retention of nothing too.
    assert_eq!(days(&outbox, "outbox.delivered").await.len(), 8);
    assert_eq!(outbox.count("outbox.messages").await, 1);
    assert_eq!(outbox.count("outbox.dead_letters").await, 1);
}

#[tokio::test]
async fn a_long_report_holds_up_the_dropping_but_not_the_making() {
    let outbox = Outbox::new().await;
    old(&outbox).await;
    let report = outbox.database.connect().await;
    report
        .batch_execute(
            "begin; select count(*) from outbox.attempts; select count(*) from outbox.delivered",
        )
        .await
        .unwrap();
    let (made, dropped) = maintained(&outbox, 9, DAY, DAY).await;
    assert_eq!((made, dropped), (4, 0));
    report.batch_execute("commit").await.unwrap();
    let (made, dropped) = maintained(&outbox, 9, DAY, DAY).await;
    assert_eq!((made, dropped), (0, 2));
}

#[tokio::test]
async fn one_at_a_time_does_the_work_and_nobody_waits() {
    let outbox = Outbox::new().await;
    let other = outbox.database.connect().await;
    other
        .batch_execute("begin; select outbox.maintain_partitions(8, '1 day', '1 day')")
        .await
        .unwrap();
    assert_eq!(maintained(&outbox, 9, DAY, DAY).await, (0, 0));
    other.batch_execute("commit").await.unwrap();
    assert_eq!(maintained(&outbox, 9, DAY, DAY).await, (2, 0));
}

/// With successes kept for a day, and all else for a hundred years.
async fn thinned(outbox: &Outbox) -> Partitions {
    let keep = Retention {
        attempts: 36_500 * DAY,
        successes: DAY,
        delivered: 36_500 * DAY,
    };
    outbox.store.maintain_partitions(7, &keep).await.unwrap()
}

#[tokio::test]
async fn successes_can_go_before_all_else() {
    let outbox = Outbox::new().await;
    outbox
        .run(
            "create table outbox.attempts_20200101 partition of outbox.attempts for values from ('2020-01-01') to ('2020-01-02');
             create table outbox.attempts_20200102 partition of outbox.attempts for values from ('2020-01-02') to ('2020-01-03');
             insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, key, outcome, settlement, relay)
             select d + n * interval '1 minute', '1 s', gen_random_uuid(), n, 0, 1, 200, 't', 'e', 'k', 'success',
                    (array['delivered', 'delivered', 'retry', 'dead', 'replayed'])[1 + n % 5], 'r'
               from unnest(array['2020-01-01', '2020-01-02', now() - interval '1 minute']::timestamptz[]) d, generate_series(0, 9) n",
        )
        .await;
    let kept = |day: &'static str| {
        let outbox = &outbox;
        async move {
            let text = "select settlement || ' ' || count(*) from outbox.attempts where started_at >= $1::text::timestamptz
                        and started_at < $1::text::timestamptz + interval '1 day' group by settlement order by settlement";
            outbox.all::<String>(text, &[&day]).await
        }
    };
    let whole = ["dead 2", "delivered 4", "replayed 2", "retry 2"];
    let rest = ["dead 2", "replayed 2", "retry 2"];

    // Who reads for hours puts that day off, and keeps nobody from his work.
    let report = outbox.database.connect().await;
    report
        .batch_execute("begin; select count(*) from outbox.attempts_20200101")
        .await
        .unwrap();
    assert_eq!(thinned(&outbox).await, Partitions::default());
    assert_eq!(kept("2020-01-01").await, whole);
    report.batch_execute("commit").await.unwrap();

    // A day at a time, each once.
    let one = Partitions {
        thinned: 1,
        ..Partitions::default()
    };
    assert_eq!(thinned(&outbox).await, one);
    assert_eq!(kept("2020-01-01").await, rest);
    assert_eq!(kept("2020-01-02").await, whole);
    assert_eq!(thinned(&outbox).await, one);
    assert_eq!(kept("2020-01-02").await, rest);
    assert_eq!(thinned(&outbox).await, Partitions::default());
    // Its indexes are those of any other, it has its name, and it goes as any other.
    let indexes: Vec<i64> = outbox
        .all(
            "select count(*) from pg_index i where i.indrelid in ('outbox.attempts_20200101'::regclass, 'outbox.attempts'::regclass)
                and i.indisvalid group by i.indrelid",
            &[],
        )
        .await;
    assert_eq!(indexes.len(), 2);
    assert_eq!(indexes[0], indexes[1]);
    let today: Vec<i64> = outbox
        .all(
            "select count(*) from outbox.attempts where started_at > now() - interval '1 day'",
            &[],
        )
        .await;
    assert_eq!(today, [10]);
    assert_eq!(maintained(&outbox, 7, DAY, DAY).await, (0, 2));
}

#[tokio::test]
async fn a_day_that_takes_too_long_stays_whole_and_undoes_nothing() {
    let outbox = Outbox::new().await;
    outbox
        .run(
            "create table outbox.attempts_20200101 partition of outbox.attempts for values from ('2020-01-01') to ('2020-01-02');
             insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, outcome, settlement, relay)
             select '2020-01-01', '1 s', gen_random_uuid(), n, 0, 1, 't', 'e', 'timeout', 'retry', 'r' from generate_series(1, 300000) n",
        )
        .await;
    let slow = outbox.database.connect().await;
    let thin =
        "set statement_timeout = '400ms'; select thinned from outbox.thin_partitions('1 day')";
    slow.batch_execute(thin).await.unwrap();
    let comment = "select obj_description('outbox.attempts_20200101'::regclass)";
    let comment: Vec<Option<String>> = outbox.all(comment, &[]).await;
    assert_eq!(comment, [Some("Whole: to thin it took too long.".into())]);
    assert_eq!(thinned(&outbox).await, Partitions::default());
    assert_eq!(outbox.count("outbox.attempts").await, 300_000);
}
