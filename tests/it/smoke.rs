//! The database that every other test starts from: a copy of the template is an outbox that works.

use std::time::Duration;

use crate::support::database;

#[tokio::test]
async fn the_template_is_an_outbox() {
    let database = database().await;
    database.store().check().await.unwrap();
    let client = database.connect().await;
    let row = client
        .query_one(
            "insert into outbox.messages (topic) values ('t') returning id::text",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0).len(), 36);
    tokio::time::timeout(Duration::from_secs(1), database.store().discover())
        .await
        .unwrap()
        .unwrap();
}
