//! `POST /v1/messages`: a message that is sent instead of inserted, once for each key of each caller.
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use reqwest::{
    RequestBuilder, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use uuid::Uuid;

use super::{OPERATOR, READER, SIGNER, Stage, WRITER};
use crate::support::{
    asked::Asked,
    binary::Directory,
    client, database, eventually,
    rows::{SOON, count, one},
};

/// The status, the body and the Location of an answer.
pub(super) type Answered = (StatusCode, Value, Option<String>);

pub(super) async fn answered(request: RequestBuilder) -> Answered {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status} {text}"));
    if !status.is_success() {
        assert_eq!(headers[CONTENT_TYPE], "application/problem+json", "{text}");
    }
    let place = headers.get(LOCATION);
    let place = place.map(|place| place.to_str().unwrap().to_owned());
    (status, body, place)
}

/// A signature as Standard Webhooks have it, of this time.
pub(super) fn signature(id: &str, at: i64, body: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let key = BASE64_STANDARD.decode(&SIGNER["whsec_".len()..]).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

impl Stage {
    fn request(&self, body: &str) -> RequestBuilder {
        let url = format!("http://{}/v1/messages", self.relay.address);
        client().post(url).body(body.to_owned())
    }

    async fn send(&self, token: &str, key: Option<&str>, body: &str) -> Answered {
        let mut request = self.request(body).bearer_auth(token);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        answered(request).await
    }

    async fn send_signed(&self, id: &str, at: i64, body: &str, signed: &str) -> Answered {
        let request = self
            .request(body)
            .header("webhook-id", id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature(id, at, signed));
        answered(request).await
    }

    /// The id of what was accepted.
    async fn accepted(&self, token: &str, key: Option<&str>, body: &str) -> Uuid {
        id(&self.send(token, key, body).await)
    }

    async fn state(&self, id: Uuid) -> String {
        let path = format!("/v1/messages/{id}");
        let (status, body) = self.ask(reqwest::Method::GET, &path, WRITER, "").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let members: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(members, ["id", "state"], "its sender reads no more");
        body["state"].as_str().unwrap().to_owned()
    }

    async fn messages(&self) -> i64 {
        let all = "select (select count(*) from outbox.messages) + (select count(*) from outbox.delivered)";
        one(&self.client, all).await
    }
}

pub(super) fn id((status, body, place): &Answered) -> Uuid {
    assert_eq!(*status, StatusCode::ACCEPTED, "{body}");
    let id = body["id"].as_str().unwrap();
    assert_eq!(place.as_deref(), Some(&*format!("/v1/messages/{id}")));
    assert_eq!(body, &json!({ "id": id }));
    id.parse().unwrap()
}

#[tokio::test]
async fn what_is_sent_is_delivered_as_it_was_written() {
    let stage = Stage::new(0).await;
    let body = r#"{"topic": "order.paid", "key": "o-1", "type": "paid", "headers": {"X-Tenant": "7"},
                   "payload": {"total": 12345678901234567890.10, "total": null}}"#;
    let first = stage.accepted(WRITER, None, body).await;
    stage.receiver.wait_for(1, SOON).await.unwrap();
    let request = &stage.receiver.requests()[0];
    let payload = r#"{"total": 12345678901234567890.10, "total": null}"#;
    assert_eq!(request.body, payload);
    for (name, value) in [
        ("idempotency-key", &*format!("\"{first}\"")),
        ("outbox-topic", "order.paid"),
        ("outbox-key", "o-1"),
        ("outbox-type", "paid"),
        ("content-type", "application/json"),
        ("x-tenant", "7"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let bytes = r#"{"topic": "t", "body_base64": "AP+A", "content_type": "image/x"}"#;
    stage.accepted(OPERATOR, None, bytes).await;
    stage.receiver.wait_for(2, SOON).await.unwrap();
    let request = &stage.receiver.requests()[1];
    assert_eq!(&request.body[..], [0, 255, 128]);
    assert_eq!(request.header("content-type"), Some("image/x"));

    // null is JSON as well.
    let null = stage
        .accepted(WRITER, None, r#"{"topic": "t", "payload": null}"#)
        .await;
    stage.receiver.wait_for(3, SOON).await.unwrap();
    assert_eq!(stage.receiver.requests()[2].body, "null");
    let delivered = async || stage.state(null).await == "delivered";
    eventually("its sender learns of it", SOON, delivered).await;
    let life = stage.get(&format!("/v1/messages/{null}")).await;
    assert_eq!(life["state"], "delivered");
    assert_eq!(life["attempts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn it_is_due_when_it_says() {
    let stage = Stage::new(0).await;
    let body = r#"{"topic": "t", "in": "2h", "expires_at": "2999-01-01T00:00:00+01:00"}"#;
    let later = stage.accepted(WRITER, None, body).await;
    let body = r#"{"topic": "t", "due_at": "2998-01-01T00:00:00Z"}"#;
    let much_later = stage.accepted(WRITER, None, body).await;
    let times = format!(
        "select (due_at - now() between interval '119 min' and interval '2 h' and expires_at = '2998-12-31 23:00Z')
            and (select m.due_at = '2998-01-01Z' from outbox.messages m where m.id = '{much_later}')
           from outbox.messages where id = '{later}'"
    );
    assert!(one::<bool>(&stage.client, &times).await);
    assert_eq!(stage.state(later).await, "pending");
    let cancelled = stage
        .post(&format!("/v1/messages/{later}/cancel"), json!({}))
        .await;
    assert_eq!(cancelled["cancelled"], 1);
    assert_eq!(stage.state(later).await, "gone");
}

#[tokio::test]
async fn the_same_request_again_has_the_same_answer_for_as_long_as_it_is_remembered() {
    let stage = Stage::new(1).await;
    let body = r#"{"topic": "t", "payload": 1}"#;
    let refused = stage.accepted(WRITER, Some("\"a\""), body).await;
    let dead = async || stage.state(refused).await == "dead";
    eventually("it is dead", SOON, dead).await;
    // With quotes and without it is the same key, and another caller's is another one.
    assert_eq!(stage.accepted(WRITER, Some("a"), body).await, refused);
    let till = format!("{WRITER}-2");
    let other = stage.accepted(&till, Some("a"), body).await;
    assert_ne!(other, refused);
    stage.receiver.wait_for(2, SOON).await.unwrap();

    let another = r#"{"topic": "t", "payload": 2}"#;
    let (status, problem, place) = stage.send(&till, Some("a"), another).await;
    assert_eq!((status, place), (StatusCode::UNPROCESSABLE_ENTITY, None));
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .starts_with("Idempotency-Key: "),
        "{problem}"
    );

    // After it was delivered, too, and when its history is past retention.
    let delivered = async || stage.state(other).await == "delivered";
    eventually("it is delivered", SOON, delivered).await;
    assert_eq!(stage.accepted(&till, Some("a"), body).await, other);
    stage
        .client
        .batch_execute("delete from outbox.attempts; delete from outbox.delivered")
        .await
        .unwrap();
    assert_eq!(stage.accepted(&till, Some("a"), body).await, other);
    assert_eq!(stage.receiver.count(), 2);
    let path = format!("/v1/messages/{other}");
    let (status, problem) = stage.ask(reqwest::Method::GET, &path, WRITER, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("past retention: it was accepted at 2"),
        "{problem}"
    );

    stage
        .client
        .batch_execute("delete from outbox.requests")
        .await
        .unwrap();
    let (_, problem) = stage.ask(reqwest::Method::GET, &path, WRITER, "").await;
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("never committed"),
        "{problem}"
    );
    assert_ne!(stage.accepted(&till, Some("a"), body).await, other);
}

/// Somebody else, another relay for example, has the same request in a transaction that is not committed yet.
#[tokio::test]
async fn two_at_once_are_one_message() {
    let stage = Stage::new(0).await;
    let body = r#"{"topic": "t", "due_at": "2999-01-01T00:00:00Z"}"#;
    let digest: [u8; 32] = Sha256::digest(body).into();
    let accept = "select id from outbox.accept('shop', $1, $2, 't', null, null, null, null, null, null, null, '2999-01-01Z', null)";
    // Within a transaction nothing new is seen of who waits.
    let looks = stage.database.connect().await;
    for (key, end, same) in [("k", "commit", true), ("l", "rollback", false)] {
        stage.client.batch_execute("begin").await.unwrap();
        let row = stage
            .client
            .query_one(accept, &[&key, &&digest[..]])
            .await
            .unwrap();
        let first: Uuid = row.get(0);
        let end = async {
            let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            let waiting = async || one::<i64>(&looks, waits).await == 1;
            eventually("the second waits", SOON, waiting).await;
            stage.client.batch_execute(end).await.unwrap();
        };
        let (second, ()) = tokio::join!(stage.accepted(WRITER, Some(key), body), end);
        assert_eq!(second == first, same, "{key}");
    }
    assert_eq!(count(&stage.client, "messages").await, 2);

    let many = (0..8).map(|_| stage.accepted(WRITER, Some("m"), body));
    let many = futures_util::future::join_all(many).await;
    assert!(many.iter().all(|id| *id == many[0]), "{many:?}");
    assert_eq!(count(&stage.client, "messages").await, 3);
    assert_eq!(count(&stage.client, "requests").await, 3);
}

#[tokio::test]
async fn what_is_wrong_with_it_is_said_and_nothing_of_it_stays() {
    let stage = Stage::new(0).await;
    let long = format!(r#"{{"topic": "{}"}}"#, "x".repeat(256));
    for (body, says) in [
        ("", "the body: a JSON object is expected"),
        ("[1]", "the body: a JSON object is expected"),
        (r#"{"payload": 1}"#, "the body: missing field `topic`"),
        (
            r#"{"topic": "t", "colour": 1}"#,
            "the body: unknown field `colour`, expected one of `topic`",
        ),
        (r#"{"topic": "t", "id": "x"}"#, "unknown field `id`"),
        (
            r#"{"topic": 7}"#,
            "invalid type: integer `7`, expected a string at line 1 column 11",
        ),
        (r#"{"topic": "t", "payload": {]}"#, "at line 1 column"),
        (
            r#"{"topic": ""}"#,
            "topic: 1 to 255 bytes, no control characters",
        ),
        (&long, "topic: 1 to 255 bytes, no control characters"),
        (r#"{"topic": "t", "key": ""}"#, "key: 1 to 1024 bytes"),
        (r#"{"topic": "t\u0000"}"#, "invalid byte sequence"),
        (
            r#"{"topic": "t", "payload": 1, "body_base64": ""}"#,
            "payload, body_base64: at most one of the two",
        ),
        (r#"{"topic": "t", "body_base64": "?"}"#, "body_base64: "),
        (
            r#"{"topic": "t", "headers": {"Host": "x"}}"#,
            "headers: a name that the relay or HTTP itself sets",
        ),
        (
            r#"{"topic": "t", "headers": {"A": 1}}"#,
            "expected a string at line 1 column",
        ),
        (
            r#"{"topic": "t", "headers": {"A": "\n"}}"#,
            "headers: a value has visible ASCII characters only",
        ),
        (r#"{"topic": "t", "in": "soon"}"#, "in: a duration such as"),
        (
            r#"{"topic": "t", "due_at": "tomorrow"}"#,
            "due_at: a time such as",
        ),
        (
            r#"{"topic": "t", "due_at": "2030-01-01T00:00:00Z", "in": "1s"}"#,
            "due_at, in: at most one of the two",
        ),
        (r#"{"topic": "t", "expires_at": 5}"#, "expected a string"),
    ] {
        let (status, problem, _) = stage.send(WRITER, Some("k"), body).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {detail}");
        assert!(detail.contains(says), "{body}: {detail}");
        assert!(!detail.contains("Failing row"), "{detail}");
    }
    let good = r#"{"topic": "t", "in": "1d"}"#;
    for key in ["", "\"\"", "a\tb", "\"open"] {
        let (status, problem, _) = stage.send(WRITER, Some(key), good).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{key:?}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .starts_with("Idempotency-Key: ")
        );
    }
    let large = format!(r#"{{"topic": "t", "payload": "{}"}}"#, "x".repeat(20 << 10));
    let (status, problem, _) = stage.send(WRITER, Some("k"), &large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("20480 bytes at most"),
        "{problem}"
    );

    // Nor does it help to say nothing of the size.
    let mut stream = TcpStream::connect(&stage.relay.address).await.unwrap();
    let chunk = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITER}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 32];
    stream.read_exact(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 413 "),
        "{}",
        answer.escape_ascii()
    );

    // None of these has used up the key.
    stage.accepted(WRITER, Some("k"), good).await;
}

#[tokio::test]
async fn only_who_may_send_sends() {
    let stage = Stage::new(0).await;
    let body = r#"{"topic": "t"}"#;
    let (status, problem, _) = stage.send(READER, None, body).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(problem["detail"], "bob may read, and change nothing");
    let (status, _, _) = stage.send("0123456789abcdef-nobody", None, body).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _, _) = answered(stage.request(body)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    for path in [
        "/v1/status",
        "/v1/messages?state=dead",
        "/v1/history",
        "/v1/jobs",
    ] {
        let (status, problem) = stage.ask(reqwest::Method::GET, path, WRITER, "").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(problem["detail"], "shop may send messages only");
    }
    let pause = "/v1/endpoints/shop/pause";
    let (status, _) = stage.ask(reqwest::Method::POST, pause, WRITER, "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let me = stage.ask(reqwest::Method::GET, "/v1/me", WRITER, "").await;
    assert_eq!(me.1, json!({ "name": "shop", "role": "writer" }));
    assert_eq!(stage.messages().await, 0);
}

#[tokio::test]
async fn who_signs_needs_no_token() {
    let stage = Stage::new(0).await;
    let now = Timestamp::now().as_second();
    let body = r#"{"topic": "t", "payload": {"n": 1}}"#;
    let first = id(&stage.send_signed("msg_1", now, body, body).await);
    // Sent again it is signed anew, and its id is its key.
    let again = stage.send_signed("msg_1", now - 60, body, body).await;
    assert_eq!(id(&again), first);
    let other = r#"{"topic": "t", "payload": {"n": 2}}"#;
    let (status, _, _) = stage.send_signed("msg_1", now, other, other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    for (at, signed, says) in [
        (now, other, "by no secret that is known"),
        (now - 301, body, "five minutes"),
        (now + 360, body, "five minutes"),
    ] {
        let (status, problem, _) = stage.send_signed("msg_2", at, body, signed).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
    let caller = "select string_agg(caller || ' ' || key, ',') from outbox.requests";
    assert_eq!(one::<String>(&stage.client, caller).await, "cash msg_1");
    // A signature is for sending alone.
    let url = format!("http://{}/v1/status", stage.relay.address);
    let request = client()
        .get(url)
        .header("webhook-id", "m")
        .header("webhook-timestamp", now)
        .header("webhook-signature", signature("m", now, ""));
    assert_eq!(answered(request).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn it_is_off_unless_somebody_is_configured() {
    let database = database().await;
    let receiver = outbox_relay::lab::receiver::Receiver::start(|_| {
        outbox_relay::lab::receiver::Reply::status(200)
    });
    let receiver = receiver.unwrap();
    let tokens = Directory::new();
    let operators = tokens.write("operators", &format!("ann {OPERATOR}\n"));
    let more = format!("operators_file = {operators:?}");
    let relay = Asked::start(&receiver, &database.url, &more).await;
    for path in ["/v1/messages", "/v1/webhooks/code"] {
        let url = format!("http://{}{path}", relay.address);
        let request = client()
            .post(url)
            .bearer_auth(OPERATOR)
            .body(r#"{"topic": "t"}"#);
        let (status, problem, _) = answered(request).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {problem}");
    }
    assert_eq!(count(&database.connect().await, "messages").await, 0);
}
