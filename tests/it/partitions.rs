//! History and archive come in daily partitions: made ahead, dropped when their time is over, without stopping anybody.

use std::time::Duration;

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
    assert_eq!(
        outbox.store.maintain_partitions(7, DAY, DAY).await.unwrap(),
        (0, 0)
    );
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
    let kept = outbox
        .store
        .maintain_partitions(7, years, years)
        .await
        .unwrap();
    assert_eq!(kept, (0, 0));
    let archive = outbox
        .store
        .maintain_partitions(7, years, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(archive, (0, 1));
    let history = outbox
        .store
        .maintain_partitions(7, DAY, Duration::ZERO)
        .await
        .unwrap();
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
    let (made, dropped) = outbox.store.maintain_partitions(9, DAY, DAY).await.unwrap();
    assert_eq!((made, dropped), (4, 0));
    report.batch_execute("commit").await.unwrap();
    let (made, dropped) = outbox.store.maintain_partitions(9, DAY, DAY).await.unwrap();
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
    assert_eq!(
        outbox.store.maintain_partitions(9, DAY, DAY).await.unwrap(),
        (0, 0)
    );
    other.batch_execute("commit").await.unwrap();
    assert_eq!(
        outbox.store.maintain_partitions(9, DAY, DAY).await.unwrap(),
        (2, 0)
    );
}
