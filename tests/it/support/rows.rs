//! What tests ask the database for, and write into it.
use std::time::Duration;

use outbox_relay::{
    message::Lane,
    store::{Mandate, Way},
};
use tokio::time::sleep;
use tokio_postgres::{Client, types::FromSqlOwned};
use uuid::Uuid;

use super::eventually;

/// Long enough for whatever is to happen at once, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Commits `count` small rows of one topic in one transaction.
pub(crate) async fn insert(client: &Client, topic: &str, count: i32) {
    let insert = "insert into outbox.messages (topic, payload) \
                  select $1, json_build_object('n', n) from generate_series(1, $2::int) n";
    client.execute(insert, &[&topic, &count]).await.unwrap();
}

/// Commits a row of topic `t`, given as columns and values, and returns its id.
pub(crate) async fn insert_one(client: &Client, columns: &str, values: &str) -> Uuid {
    let insert = format!(
        "insert into outbox.messages (topic, {columns}) values ('t', {values}) returning id"
    );
    one(client, &insert).await
}

/// Runs a statement around the CHECKs of messages, as somebody could who owns the table. Then they are as before: a schema
/// that was altered is not delivered from.
pub(crate) async fn around_checks(client: &Client, statement: &str) {
    let checks = "select conname, pg_get_constraintdef(oid) from pg_constraint
                   where conrelid = 'outbox.messages'::regclass and contype = 'c'";
    let rows = client.query(checks, &[]).await.unwrap();
    let (mut drop, mut restore) = (String::new(), String::new());
    for row in &rows {
        let (name, definition): (&str, &str) = (row.get(0), row.get(1));
        let alter = "alter table outbox.messages";
        drop.push_str(&format!("{alter} drop constraint \"{name}\";"));
        restore.push_str(&format!(
            "{alter} add constraint \"{name}\" {definition} not valid;"
        ));
    }
    let text = format!(
        "begin; {drop} {statement}; {restore}
         update pg_constraint set convalidated = true
          where conrelid = 'outbox.messages'::regclass and contype = 'c'; commit"
    );
    client.batch_execute(&text).await.unwrap();
}

/// The one value that a query returns.
pub(crate) async fn one<T: FromSqlOwned>(client: &Client, query: &str) -> T {
    let row = client.query_one(query, &[]).await;
    row.unwrap_or_else(|error| panic!("{query}: {error:?}"))
        .get(0)
}

/// An operator's word.
pub(crate) fn mandate<'a>(why: &'a str, by: &'a str) -> Mandate<'a> {
    Mandate {
        why: Some(why),
        by: Some(by),
    }
}

/// A lane that leads nobody knows where.
pub(crate) fn way(lane: &Lane) -> Way {
    Way {
        lane: lane.clone(),
        leads_to: Vec::new(),
        in_order: false,
    }
}

/// How many rows a table of the outbox has; `from` may go on with a condition.
pub(crate) async fn count(client: &Client, from: &str) -> i64 {
    one(client, &format!("select count(*) from outbox.{from}")).await
}

/// Waits until nothing is pending.
pub(crate) async fn all_settled(client: &Client, deadline: Duration) {
    eventually("nothing is pending", deadline, async || {
        count(client, "messages").await == 0
    })
    .await;
}

/// No message, no lease and no relay is left behind.
pub(crate) async fn assert_nothing_left(client: &Client) {
    let left = (
        count(client, "messages").await,
        count(client, "leases").await,
        count(client, "relays").await,
    );
    assert_eq!(left, (0, 0, 0), "messages, leases, relays");
}

/// The outcomes in the history of a message, in order.
pub(crate) async fn outcomes(client: &Client, id: Uuid) -> Vec<String> {
    let query = "select outcome from outbox.attempts where id = $1 order by attempt, started_at";
    let rows = client.query(query, &[&id]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Transactions in a second in this database, but for those of this connection. Autovacuum, a pooler's checks and what was
/// counted late are in it: so it is the quietest of three stretches that counts, and each is as long as the database's clock
/// says.
pub(crate) async fn transactions(client: &Client) -> f64 {
    let query = "select (xact_commit + xact_rollback)::float8, extract(epoch from clock_timestamp())::float8
                   from pg_stat_database where datname = current_database()";
    let look = async || {
        let row = client.query_one(query, &[]).await.unwrap();
        (row.get::<_, f64>(0), row.get::<_, f64>(1))
    };
    let mut fewest = f64::INFINITY;
    for _ in 0..3 {
        let (made, at) = look().await;
        // The passing of this time is what is measured.
        sleep(Duration::from_secs(6)).await;
        let (made_by_then, then) = look().await;
        fewest = fewest.min((made_by_then - made - 1.0) / (then - at));
    }
    fewest
}
