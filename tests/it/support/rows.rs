//! What tests ask the database for, and write into it.
use std::time::Duration;

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

/// The one value that a query returns.
pub(crate) async fn one<T: FromSqlOwned>(client: &Client, query: &str) -> T {
    let row = client.query_one(query, &[]).await;
    row.unwrap_or_else(|error| panic!("{query}: {error:?}"))
        .get(0)
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
