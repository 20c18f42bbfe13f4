//! While a transaction is open, no vacuum can remove what was delivered since: claims go on above it, from their floors.

use tokio_postgres::Row;
use uuid::Uuid;

use super::{LIMIT, QUIET, Session, fill, watch};
use crate::outbox::Outbox;

/// Claims what is behind this `seq`.
async fn claim(session: &Session, floor: i64, in_order: bool) {
    let relay = session
        .run("register", &[&"a relay", &"1", &"digest", &15.0_f64])
        .await
        .remove(0);
    let (me, epoch) = (relay.get::<_, Uuid>("relay"), relay.get::<_, Uuid>("epoch"));
    let floors = format!("select {floor}::bigint, null::timestamptz, 0::bigint, 0::bigint");
    let floors: Row = session.client.query_one(&floors, &[]).await.unwrap();
    let claimed = session.claim(me, epoch, in_order, LIMIT, &floors).await;
    assert_eq!(claimed.get::<_, &str>("state"), "claimed");
}

#[tokio::test]
async fn plans_hold_above_what_no_vacuum_can_remove() {
    let outbox = Outbox::new().await;
    outbox.run(QUIET).await;
    let old = outbox.database.connect().await;
    old.batch_execute(
        "begin isolation level repeatable read; select count(*) from outbox.messages",
    )
    .await
    .unwrap();
    fill(&outbox, 200_000, "null").await;
    outbox.run("delete from outbox.messages").await;
    outbox.run("vacuum outbox.messages").await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', 'new' || n from generate_series(1, 500) n")
        .await;
    let above: i64 = outbox
        .one("select min(seq) - 1 from outbox.messages", &[])
        .await;
    for in_order in [false, true] {
        let (plans, faults) = watch(&outbox, "auto", async |session| {
            claim(session, above, in_order).await;
        })
        .await;
        assert!(plans > 5, "{plans}");
        assert!(
            faults.is_empty(),
            "in order {in_order}: {}",
            faults.join("\n")
        );
        // It is the floor that keeps it from all that.
        let (_, faults) = watch(&outbox, "auto", async |session| {
            claim(session, 0, in_order).await;
        })
        .await;
        assert!(!faults.is_empty(), "in order {in_order}");
    }
    drop(old);
}
