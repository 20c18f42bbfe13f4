//! One row's way to its receiver: what arrives, and what follows from the answer.
use std::time::Duration;

use outbox_relay::{
    delivery::EXCERPT,
    lab::receiver::{Receiver, Reply, Request},
    relay::Relay,
    store::Records,
};

use crate::support::{
    eventually,
    relay::start,
    rows::{SOON, all_settled, count, insert_one, one, outcomes},
    scene::Scene,
};

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.header(name).unwrap_or_default()
}

// === what arrives ===

#[tokio::test]
async fn a_row_arrives_with_its_bytes_and_says_which_one_it_is() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let payload =
        r#"{"n": 50755254975729665, "f": 1e400, "d": 0.1000,  "a":1, "a":2, "ü": "\u00e9"}"#;
    let id = scene
        .deliver(
            "key, type, headers, payload, created_at",
            &format!(
                "'order 7', 'OrderPaid', '{{\"X-Request\": \"00-abc-01\", \"X-Shop\": \"a, b\"}}', '{payload}', \
                 '2026-01-02 03:04:05.678901+01'"
            ),
        )
        .await;
    let requests = scene.receiver.requests();
    let [request] = requests.as_slice() else {
        panic!("{} requests", requests.len())
    };
    assert_eq!(request.body, payload, "byte for byte");
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/hook?x=1")
    );
    for (name, value) in [
        ("idempotency-key", format!("\"{id}\"").as_str()),
        ("outbox-message-id", &id.to_string()),
        ("outbox-topic", "t"),
        ("outbox-key", "order%207"),
        ("outbox-type", "OrderPaid"),
        ("outbox-attempt", "1"),
        ("outbox-created-at", "2026-01-02T02:04:05.678901Z"),
        ("content-type", "application/json"),
        ("content-length", &payload.len().to_string()),
        ("x-request", "00-abc-01"),
        ("x-shop", "a, b"),
    ] {
        assert_eq!(header(request, name), value, "{name}");
    }
    assert!(header(request, "user-agent").starts_with("outbox-relay/"));
}

#[tokio::test]
async fn a_body_arrives_as_its_bytes_under_its_own_content_type() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    scene
        .deliver("body, content_type", r"'\x00ff0d0a', 'image/png'")
        .await;
    scene.deliver("body", r"'\x01'").await;
    scene
        .deliver(
            "payload, content_type",
            "'[1]', 'application/cloudevents+json'",
        )
        .await;
    let requests = scene.receiver.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (header(request, "content-type"), &request.body[..]))
        .collect();
    assert_eq!(
        seen,
        [
            ("image/png", &b"\x00\xff\r\n"[..]),
            ("application/octet-stream", b"\x01"),
            ("application/cloudevents+json", b"[1]"),
        ]
    );
}

#[tokio::test]
async fn null_empty_and_null_in_json_are_three_different_payloads() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    scene.deliver("payload", "null").await;
    scene.deliver("body", "''").await;
    scene.deliver("payload", "'null'").await;
    let requests = scene.receiver.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| {
            let (kind, length) = (
                request.header("content-type"),
                request.header("content-length"),
            );
            (kind, length, &request.body[..])
        })
        .collect();
    assert_eq!(
        seen,
        [
            (None, Some("0"), &b""[..]),
            (Some("application/octet-stream"), Some("0"), b""),
            (Some("application/json"), Some("4"), b"null"),
        ]
    );
}

#[tokio::test]
async fn a_megabyte_of_text_arrives_whole() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let id = scene
        .deliver("payload", "to_json(repeat('0123456789äöü\"\\', 60000))")
        .await;
    let stored = "select convert_to(payload::text, 'UTF8') from outbox.delivered where id = $1";
    let row = scene.client.query_one(stored, &[&id]).await.unwrap();
    let stored: Vec<u8> = row.get(0);
    assert!(stored.len() > 1_000_000);
    assert!(
        scene.receiver.requests()[0].body == stored,
        "the bytes differ"
    );
}

// === what follows from an answer ===

#[tokio::test]
async fn any_2xx_is_a_delivery_kept_in_history_and_archive() {
    for status in [200, 201, 202, 204, 299] {
        let scene = Scene::new(move |_| Reply::status(status)).await;
        let id = scene.deliver("payload, key", "'{\"a\": 1}', 'k'").await;
        assert_eq!(scene.receiver.count(), 1);
        let attempt = "select attempt, status, outcome, settlement, relay, endpoint, key, error is null, duration >= interval '0' \
                       from outbox.attempts where id = $1";
        let row = scene.client.query_one(attempt, &[&id]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (1, Some(i32::from(status))));
        let words: Vec<&str> = (2..7).map(|column| row.get(column)).collect();
        assert_eq!(words, ["success", "delivered", "relay", "shop", "k"]);
        assert!(row.get::<_, bool>(7) && row.get::<_, bool>(8));
        let archived = "payload::text = '{\"a\": 1}' and attempts = 1 and endpoint = 'shop' and lane_endpoint = '' and key = 'k'";
        assert_eq!(
            count(&scene.client, &format!("delivered where {archived}")).await,
            1
        );
    }
}

#[tokio::test]
async fn without_an_archive_no_payload_is_kept() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    insert_one(&scene.client, "payload", "'1'").await;
    let relay = start(Relay {
        records: Records::ATTEMPTS,
        ..scene.relay()
    });
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(count(&scene.client, "delivered").await, 0);
    assert_eq!(count(&scene.client, "attempts").await, 1);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_again_with_the_next_number_under_the_same_key() {
    let scene = Scene::new(|request| match request.number {
        // On a used connection a reset is sent again at once: so that it comes on a new one.
        1 => Reply::status(503)
            .header("connection", "close")
            .body("busy"),
        2 => Reply::hang_up(),
        3 => Reply::status(404),
        4 => Reply::status(200).body("half").reset(),
        _ => Reply::status(200),
    })
    .await;
    let id = scene.deliver("payload", "'1'").await;
    let requests = scene.receiver.requests();
    let key = format!("\"{id}\"");
    assert!(
        requests
            .iter()
            .all(|request| header(request, "idempotency-key") == key)
    );
    let numbers: Vec<_> = requests
        .iter()
        .map(|request| header(request, "outbox-attempt"))
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5"]);
    assert_eq!(
        outcomes(&scene.client, id).await,
        ["unavailable", "reset", "misconfigured", "reset", "success"]
    );
    let told =
        "select response || ' ' || error || ' ' || status from outbox.attempts where attempt = 1";
    assert_eq!(
        one::<String>(&scene.client, told).await,
        "busy HTTP 503 Service Unavailable 503"
    );
}

#[tokio::test]
async fn a_refusal_is_a_dead_letter_with_reason_status_and_what_was_answered() {
    let scene = Scene::new(|_| Reply::status(422).body("no such customer")).await;
    let id = scene
        .deliver(
            "payload, key, type, headers",
            "'{\"a\":  1}', 'k', 'T', '{\"x\": \"y\"}'",
        )
        .await;
    assert_eq!(scene.receiver.count(), 1);
    assert_eq!(scene.dead().await, ("rejected".into(), Some(422), 1));
    let kept = format!(
        "dead_letters where id = '{id}' and payload::text = '{{\"a\":  1}}' and key = 'k' and type = 'T' \
         and headers = '{{\"x\": \"y\"}}' and endpoint = 'shop' and last_error = 'HTTP 422 Unprocessable Entity: no such customer'"
    );
    assert_eq!(count(&scene.client, &kept).await, 1);
    let told = "attempts where response = 'no such customer' and outcome = 'rejected' and settlement = 'dead' and reason = 'rejected'";
    assert_eq!(count(&scene.client, told).await, 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_is_no_delivery() {
    let scene = Scene::new(|request| match (request.path.as_str(), request.number) {
        ("/hook?x=1", 1) => Reply::status(302).header("location", "/login?token=s3cret"),
        _ => Reply::status(200),
    })
    .await;
    let id = scene.deliver("payload", "'1'").await;
    let paths: Vec<_> = scene
        .receiver
        .requests()
        .iter()
        .map(|r| r.path.clone())
        .collect();
    assert_eq!(paths, ["/hook?x=1", "/hook?x=1"]);
    assert_eq!(outcomes(&scene.client, id).await, ["redirect", "success"]);
    let error: String = one(
        &scene.client,
        "select error from outbox.attempts where status = 302",
    )
    .await;
    assert!(
        error.contains("/login") && !error.contains("s3cret"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_a_failure() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::never(),
        2 => Reply::status(200)
            .body("so slow")
            .drip(Duration::from_secs(1)),
        _ => Reply::status(200),
    })
    .await;
    let id = insert_one(&scene.client, "payload", "'1'").await;
    let mut relay = scene.relay();
    relay.endpoints[0].timeout = Duration::from_millis(300);
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(
        outcomes(&scene.client, id).await,
        ["timeout", "timeout", "success"]
    );
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_tried_until_it_is() {
    let mut scene = Scene::new(|_| Reply::status(200)).await;
    scene.receiver.stop().await;
    let id = insert_one(&scene.client, "payload", "'1'").await;
    let relay = scene.start();
    eventually("it failed twice", SOON, async || {
        count(&scene.client, "attempts where outcome = 'connect'").await >= 2
    })
    .await;
    let again = Receiver::start_on(scene.receiver.port(), |_| Reply::status(200)).unwrap();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(again.count(), 1);
    assert_eq!(
        outcomes(&scene.client, id).await.pop().as_deref(),
        Some("success")
    );
}

#[tokio::test]
async fn answers_of_any_bytes_are_stored_as_text_of_bounded_length() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(500).body(&b"a\0b\xffc\xc3"[..]),
        2 => Reply::status(500).body("ä".repeat(100_000)),
        _ => Reply::status(200).body(vec![0; 200]),
    })
    .await;
    let id = scene.deliver("payload", "'1'").await;
    let query = "select response from outbox.attempts where id = $1 order by attempt";
    let rows = scene.client.query(query, &[&id]).await.unwrap();
    let responses: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(responses[0], "a\u{FFFD}b\u{FFFD}c\u{FFFD}");
    assert_eq!(responses[1], "ä".repeat(EXCERPT / 2));
    assert!(responses[2].chars().all(|c| c == '\u{FFFD}'));
}
