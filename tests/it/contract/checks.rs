//! What could never be sent is refused where it is inserted, with a sentence that says why.

use super::{SqlState, database};

const TOPIC: &str = "topic: 1 to 255 bytes, no control characters";
const KEY: &str = "key: 1 to 1024 bytes; for no ordering key leave it NULL";
const TYPE: &str = "type: 1 to 255 bytes, no control characters";
const CONTENT_TYPE: &str = "content_type: 1 to 255 visible ASCII characters";
const ONE: &str = "payload, body: at most one of the two";
const SIZE: &str = "payload, body: at most 16 MiB (16777216 bytes)";
const OBJECT: &str = "headers: a JSON object whose values are strings";
const NAME: &str = "headers: a name is an HTTP token of letters, digits, - _ . etc";
const VALUE: &str = "headers: a value has visible ASCII characters only";
const OURS: &str = "headers: a name that the relay or HTTP itself sets";
const HEADERS: &str = "headers: at most 16 kB in all";
const CREATED: &str = "created_at: a finite time";

/// A column, an expression for it, and the sentence that refuses it.
const REFUSED: &[(&str, &str, &str)] = &[
    ("topic", "''", TOPIC),
    ("topic", "repeat('x', 256)", TOPIC),
    ("topic", "repeat('ö', 128)", TOPIC),
    ("topic", "E'a\\nb'", TOPIC),
    ("topic", "E'a\\tb'", TOPIC),
    ("topic", "E'a\\x7f'", TOPIC),
    ("key", "''", KEY),
    ("key", "repeat('x', 1025)", KEY),
    ("key", "repeat('ö', 513)", KEY),
    ("type", "''", TYPE),
    ("type", "repeat('x', 256)", TYPE),
    ("type", "E'a\\r'", TYPE),
    ("content_type", "''", CONTENT_TYPE),
    ("content_type", "repeat('x', 256)", CONTENT_TYPE),
    ("content_type", "'text/ö'", CONTENT_TYPE),
    ("content_type", "E'text/plain\\r\\nHost: x'", CONTENT_TYPE),
    ("payload, body", "'1', 'x'", ONE),
    ("payload, body", "'null', ''", ONE),
    ("body", "convert_to(repeat('x', 16777217), 'utf8')", SIZE),
    ("payload", "to_json(repeat('x', 16777215))", SIZE),
    ("headers", "'null'", OBJECT),
    ("headers", "'1'", OBJECT),
    ("headers", "'\"a\"'", OBJECT),
    ("headers", "'[]'", OBJECT),
    ("headers", "'[\"a\"]'", OBJECT),
    ("headers", "'[{\"a\": \"b\"}]'", OBJECT),
    ("headers", "'{\"a\": 1}'", OBJECT),
    ("headers", "'{\"a\": null}'", OBJECT),
    ("headers", "'{\"a\": true}'", OBJECT),
    ("headers", "'{\"a\": \"b\", \"c\": {}}'", OBJECT),
    ("headers", "'{\"a\": {\"b\": \"c\"}}'", OBJECT),
    ("headers", "'{\"a\": []}'", OBJECT),
    ("headers", "'{\"a\": [\"b\"]}'", OBJECT),
    ("headers", "'{\"a\": [[\"b\"]]}'", OBJECT),
    ("headers", "'{\"\": \"b\"}'", NAME),
    ("headers", "'{\"a b\": \"c\"}'", NAME),
    ("headers", "'{\"a:\": \"b\"}'", NAME),
    ("headers", "'{\"ö\": \"b\"}'", NAME),
    ("headers", "'{\"a\\n\": \"b\"}'", NAME),
    ("headers", "'{\"\\na\": \"b\"}'", NAME),
    ("headers", "'{\"a\\r\\nHost\": \"b\"}'", NAME),
    ("headers", "'{\"Host \": \"b\"}'", NAME),
    ("headers", "'{\"ok\": \"b\", \"(\": \"b\"}'", NAME),
    ("headers", "'{\"a\": \"b\\r\\nHost: c\"}'", VALUE),
    ("headers", "'{\"a\": \"b\\n\"}'", VALUE),
    ("headers", "'{\"a\": \"\\nb\"}'", VALUE),
    ("headers", "'{\"a\": \"\\r\"}'", VALUE),
    ("headers", "'{\"a\": \"\\u0001\"}'", VALUE),
    ("headers", "'{\"a\": \"\\u007f\"}'", VALUE),
    ("headers", "'{\"a\": \"ö\"}'", VALUE),
    (
        "headers",
        "'{\"ok\": \"b\", \"a\": \"\\ud83d\\ude00\"}'",
        VALUE,
    ),
    ("headers", "'{\"Host\": \"b\"}'", OURS),
    ("headers", "'{\"host\": \"b\"}'", OURS),
    ("headers", "'{\"content-length\": \"1\"}'", OURS),
    ("headers", "'{\"Content-Type\": \"b\"}'", OURS),
    ("headers", "'{\"Transfer-Encoding\": \"chunked\"}'", OURS),
    ("headers", "'{\"Connection\": \"close\"}'", OURS),
    ("headers", "'{\"Keep-Alive\": \"b\"}'", OURS),
    ("headers", "'{\"Proxy-Authorization\": \"b\"}'", OURS),
    ("headers", "'{\"TE\": \"b\"}'", OURS),
    ("headers", "'{\"Trailer\": \"b\"}'", OURS),
    ("headers", "'{\"Upgrade\": \"b\"}'", OURS),
    ("headers", "'{\"Expect\": \"100-continue\"}'", OURS),
    ("headers", "'{\"Idempotency-Key\": \"b\"}'", OURS),
    (
        "headers",
        "'{\"ok\": \"b\", \"IDEMPOTENCY-KEY\": \"b\"}'",
        OURS,
    ),
    ("headers", "'{\"Outbox-X\": \"b\"}'", OURS),
    ("headers", "'{\"webhook-id\": \"b\"}'", OURS),
    (
        "headers",
        "jsonb_build_object('a', repeat('x', 16384))",
        HEADERS,
    ),
    (
        "headers",
        "(select jsonb_object_agg('name' || n, 'value') from generate_series(1, 2000) n)",
        HEADERS,
    ),
    ("created_at", "'infinity'", CREATED),
    ("created_at", "'-infinity'", CREATED),
];

const ACCEPTED: &[(&str, &str)] = &[
    ("topic", "repeat('x', 255)"),
    ("topic", "'orders.paid ö/x'"),
    ("key", "repeat('x', 1024)"),
    ("key", "E'a\\nb'"),
    ("key", "null"),
    ("type", "repeat('x', 255)"),
    ("content_type", "'application/json; charset=utf-8'"),
    ("payload", "'null'"),
    ("payload", "null"),
    ("body", "''"),
    ("body", "convert_to(repeat('x', 16777216), 'utf8')"),
    ("payload", "to_json(repeat('x', 16777214))"),
    ("headers", "null"),
    ("headers", "'{}'"),
    ("headers", "'{\"!#$%&''*+.^_`|~-09azAZ\": \"x\"}'"),
    ("headers", "'{\"a\": \"\"}'"),
    ("headers", "'{\"a\": \" ~\\t!\"}'"),
    ("headers", "'{\"Authorization\": \"Bearer x\"}'"),
    (
        "headers",
        "'{\"X-Host\": \"b\", \"Hosts\": \"b\", \"My-Outbox-X\": \"b\", \"Proxy\": \"b\"}'",
    ),
    ("headers", "jsonb_build_object('a', repeat('x', 16000))"),
    ("due_at", "'infinity'"),
    ("due_at", "'-infinity'"),
    ("expires_at", "'infinity'"),
];

fn insert(column: &str, value: &str) -> String {
    if column == "topic" {
        format!("insert into outbox.messages (topic) values ({value})")
    } else {
        format!("insert into outbox.messages (topic, {column}) values ('t', {value})")
    }
}

#[tokio::test]
async fn each_bad_row_is_refused_with_its_sentence() {
    let database = database().await;
    let client = database.connect().await;
    for (column, value, sentence) in REFUSED {
        let refused = client.batch_execute(&insert(column, value)).await;
        let Err(error) = refused else {
            panic!("{column} = {value} was accepted");
        };
        let error = error.as_db_error().unwrap();
        assert_eq!(
            error.code(),
            &SqlState::CHECK_VIOLATION,
            "{column} = {value}: {error}"
        );
        assert_eq!(error.constraint(), Some(*sentence), "{column} = {value}");
    }
    let bad_text = [
        ("headers", "'{\"a\": \"b\\u0000\"}'"),
        ("payload", "'{\"a\": '"),
        ("topic", "null"),
        ("topic", "E'a\\x00'"),
    ];
    for (column, value) in bad_text {
        let refused = client.batch_execute(&insert(column, value)).await;
        assert!(refused.is_err(), "{column} = {value} was accepted");
    }
}

#[tokio::test]
async fn each_good_row_is_accepted() {
    let database = database().await;
    let client = database.connect().await;
    for (column, value) in ACCEPTED {
        client
            .batch_execute(&insert(column, value))
            .await
            .unwrap_or_else(|error| panic!("{column} = {value}: {error:?}"));
    }
}
