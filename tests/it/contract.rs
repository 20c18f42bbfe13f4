//! The contract with the application: what it may insert, how, and what comes out of it byte for byte.

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt;
use outbox_relay::store;
use tokio_postgres::{Client, error::SqlState};
use uuid::Uuid;

use crate::{
    outbox::{Outbox, take},
    support::{config, database},
};

mod checks;
mod roles;

async fn as_writer(outbox: &Outbox) -> Client {
    let client = outbox.database.connect().await;
    client
        .batch_execute("set role outbox_writer")
        .await
        .unwrap();
    client
}

#[tokio::test]
async fn an_application_inserts_in_any_way_it_likes() {
    let outbox = Outbox::new().await;
    let app = as_writer(&outbox).await;
    let insert = async |sql: &str| app.execute(sql, &[]).await.unwrap();
    assert_eq!(
        insert("insert into outbox.messages (topic) values ('t')").await,
        1
    );
    assert_eq!(
        insert("insert into outbox.messages (topic, key) values ('t', 'a'), ('t', 'b')").await,
        2
    );
    assert_eq!(
        insert("insert into outbox.messages (topic, payload) select 't', json_build_object('n', n) from generate_series(1, 3) n").await,
        3
    );
    let all = "insert into outbox.messages (id, topic, key, type, payload, content_type, headers, due_at, expires_at, created_at)
               values ('00000000-0000-4000-8000-000000000001', 't', 'k', 'order.paid', '{}', 'application/cloudevents+json', '{\"a\": \"b\"}',
                       now(), now() + interval '1 hour', now())";
    assert_eq!(insert(all).await, 1);
    assert_eq!(
        insert("insert into outbox.messages (topic, body) values ('t', '\\x00ff')").await,
        1
    );
    let again = "insert into outbox.messages (id, topic) values ('00000000-0000-4000-8000-000000000001', 't') on conflict do nothing";
    assert_eq!(
        insert(again).await,
        0,
        "an id of one's own makes the insert idempotent"
    );

    let sink = app
        .copy_in::<_, Bytes>("copy outbox.messages (topic, key, payload) from stdin")
        .await
        .unwrap();
    let mut sink = pin!(sink);
    sink.send(Bytes::from_static(b"t\tk\t{\"a\": 1}\nt\t\\N\t\\N\n"))
        .await
        .unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);

    let me = outbox.relay().await;
    assert_eq!(outbox.lease(&me, &take(100)).await.ids.len(), 10);
}

#[tokio::test]
async fn returning_tells_id_and_seq() {
    let outbox = Outbox::new().await;
    let app = as_writer(&outbox).await;
    let rows = app
        .query(
            "insert into outbox.messages (topic) values ('t'), ('t') returning id, seq",
            &[],
        )
        .await
        .unwrap();
    let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
    assert_eq!(seqs, [1, 2]);
    assert_ne!(rows[0].get::<_, Uuid>("id"), rows[1].get::<_, Uuid>("id"));
}

#[tokio::test]
async fn what_was_rolled_back_is_not_there() {
    let outbox = Outbox::new().await;
    let app = as_writer(&outbox).await;
    app.batch_execute(
        "begin; insert into outbox.messages (topic) values ('t'); rollback;
         begin;
         insert into outbox.messages (topic, key) values ('t', 'kept');
         savepoint s;
         insert into outbox.messages (topic, key) values ('t', 'not kept');
         rollback to savepoint s;
         commit",
    )
    .await
    .unwrap();
    let keys: Vec<String> = outbox.all("select key from outbox.messages", &[]).await;
    assert_eq!(keys, ["kept"]);
}

#[tokio::test]
async fn a_payload_comes_out_as_it_was_stored() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let text = format!("{{\"text\": \"{}\"}}", "ö".repeat(500_000));
    let payloads = [
        "50755254975729665",
        "1e400",
        "0.1000",
        "-0.0",
        "{\"b\": 1, \"a\": 2, \"b\": 3}",
        " { \"spaces\" :\t[ ] }\n",
        "\"\\u0041\\/\"",
        "null",
        "\"\"",
        &text,
    ];
    for payload in payloads {
        outbox
            .client
            .execute(
                "insert into outbox.messages (topic, payload) values ('t', $1::text::json)",
                &[&payload],
            )
            .await
            .unwrap();
    }
    let (_, loaded) = outbox.loaded(&me, &take(100)).await;
    for (delivery, payload) in loaded.iter().zip(payloads) {
        assert!(
            delivery.body.as_deref() == Some(payload.as_bytes()),
            "{payload:.40}"
        );
        assert_eq!(delivery.content_type.as_deref(), Some("application/json"));
    }
    assert_eq!(loaded.len(), payloads.len());
}

#[tokio::test]
async fn bodies_headers_and_times_are_loaded_as_they_were_stored() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run(
            "insert into outbox.messages (topic, body, content_type, headers, expires_at) values
                 ('t', '\\x00ff0a', 'text/plain', '{\"X-A\": \"1\", \"traceparent\": \"00-0\"}', 'infinity'),
                 ('t', '', null, '{}', now() + interval '1 hour'),
                 ('t', null, 'text/plain', null, '-infinity')",
        )
        .await;
    let (_, loaded) = outbox.loaded(&me, &take(100)).await;
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(loaded[0].body.as_deref(), Some(&[0, 255, 10][..]));
    assert_eq!(loaded[0].content_type.as_deref(), Some("text/plain"));
    assert_eq!(
        loaded[0].headers,
        [header("X-A", "1"), header("traceparent", "00-0")]
    );
    assert_eq!(loaded[0].expires_in, None, "never");
    assert_eq!(loaded[1].body.as_deref(), Some(&[][..]));
    assert_eq!(
        loaded[1].content_type.as_deref(),
        Some("application/octet-stream")
    );
    let left = loaded[1].expires_in.unwrap().as_secs();
    assert!((3500..=3600).contains(&left), "{left}");
    assert_eq!(loaded[2].body, None);
    assert_eq!(loaded[2].content_type, None);
    assert_eq!(loaded[2].expires_in, Some(std::time::Duration::ZERO));
    assert_eq!(
        loaded[2].created_at.len(),
        "2026-01-01T00:00:00.000000Z".len()
    );
}
