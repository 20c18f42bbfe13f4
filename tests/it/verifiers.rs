//! What a receiver gets is judged by libraries that nobody on this project wrote: see `verify.py`.
//!
//! `scripts/setup` installs them. Each judgement is tested too: it must refuse what is wrong.

use std::{
    env, fs,
    io::Write as _,
    path::PathBuf,
    process::{self, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use outbox_relay::{
    delivery::{
        Client, Endpoint, batch,
        format::Shape,
        idempotency::{self, Format},
        sign::{self, Secret},
    },
    lab::receiver::{Receiver, Reply, Request},
    message::{Class, Delivery},
    trace::Propagation,
};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const PRIVATE: &str =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";

/// What the library says of a request: what it read, or its last line.
pub(crate) fn judge(check: &str, request: &Request, more: &Value) -> Result<Value, String> {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where they are"
    )]
    let python = env::var("OUTBOX_TEST_PYTHON");
    let python = python
        .expect("OUTBOX_TEST_PYTHON is not set: run the tests with scripts/test, which sets it");
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let mut given = json!({
        "check": check,
        "headers": headers,
        "body": BASE64_STANDARD.encode(&request.body),
    });
    let more = more.as_object().unwrap().clone();
    given.as_object_mut().unwrap().extend(more);
    let mut child = Command::new(python)
        .arg("tests/it/verify.py")
        .current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(text.lines().last().unwrap_or_default().to_owned())
}

fn delivery(body: &'static [u8]) -> Delivery {
    Delivery {
        lease: 1,
        lane_endpoint: String::new(),
        id: Uuid::from_u128(0x0190_b3c4_0000_7000_8000_0000_0000_abcd),
        topic: "order.created".into(),
        key: Some("Euro € \u{1F600}".into()),
        kind: Some("order.created.v1".into()),
        body: Some(Bytes::from_static(body)),
        content_type: Some("application/json".into()),
        headers: Vec::new(),
        seq: 42,
        attempts: 0,
        throttled: 0,
        lost: 0,
        generation: 0,
        sent_to: None,
        step: None,
        created_at: "2026-01-02T03:04:05.678901Z".into(),
        age: Duration::ZERO,
        expires_in: None,
    }
}

/// What a receiver gets of a delivery.
async fn received(delivery: &Delivery, change: impl FnOnce(&mut Endpoint)) -> Request {
    let receiver = Receiver::start(|_| Reply::status(204)).unwrap();
    let mut endpoint = Endpoint::new("test", receiver.url("/hook").parse().unwrap());
    change(&mut endpoint);
    let outcome = Client::new(&endpoint).unwrap().attempt(delivery).await;
    assert_eq!(outcome.class, Class::Success, "{:?}", outcome.error);
    receiver.requests().remove(0)
}

fn signed(secrets: &[&str]) -> sign::Config {
    sign::Config {
        secrets: secrets.iter().map(|s| Secret::parse(s).unwrap()).collect(),
        ..sign::Config::default()
    }
}

#[tokio::test]
async fn signatures_are_good_to_the_reference_implementation() {
    let body = br#"{"n": 50755254975729665, "x":1e400}"#;
    let request = received(&delivery(body), |endpoint| {
        endpoint.sign = signed(&[SECRET, PRIVATE, OTHER]);
    })
    .await;
    for secret in [SECRET, OTHER] {
        let secret = json!({ "secret": secret });
        assert_eq!(judge("webhook", &request, &secret), Ok(json!(true)));
    }
    let key = json!({ "key": PUBLIC });
    assert_eq!(judge("webhook_public", &request, &key), Ok(json!(true)));

    // And so they would say if they were not.
    let mut forged = request.clone();
    forged.body = Bytes::from_static(br#"{"n": 50755254975729664, "x":1e400}"#);
    let mut late = request.clone();
    late.headers
        .insert("webhook-timestamp", "1614265330".parse().unwrap());
    let mut renamed = request.clone();
    renamed.headers.insert("webhook-id", "1".parse().unwrap());
    for wrong in [forged, late, renamed] {
        let error = judge("webhook", &wrong, &json!({ "secret": SECRET })).unwrap_err();
        assert!(error.contains("WebhookVerificationError"), "{error}");
        let error = judge("webhook_public", &wrong, &key).unwrap_err();
        assert!(error.contains("InvalidSignature"), "{error}");
    }
    let alone = received(&delivery(body), |endpoint| {
        endpoint.sign = signed(&[OTHER]);
    })
    .await;
    assert!(judge("webhook", &alone, &json!({ "secret": SECRET })).is_err());
    assert!(judge("webhook_public", &alone, &key).is_err());
}

#[tokio::test]
async fn the_key_is_a_string_of_structured_fields() {
    let id = delivery(b"").id.to_string();
    let key = json!({ "header": "idempotency-key" });
    let request = received(&delivery(b"{}"), |_| {}).await;
    let item = judge("structured_field", &request, &key).unwrap();
    assert_eq!(
        item,
        json!({ "type": "str", "value": id, "parameters": {} })
    );

    // Bare it is none, which is why it is not bare.
    let request = received(&delivery(b"{}"), |endpoint| {
        endpoint.idempotency.format = Format::Bare;
    })
    .await;
    assert_eq!(request.header("idempotency-key"), Some(id.as_str()));
    let error = judge("structured_field", &request, &key).unwrap_err();
    assert!(error.contains("StructuredFieldError"), "{error}");

    let request = received(&delivery(b"{}"), |endpoint| {
        endpoint.idempotency = idempotency::Config {
            header: "x-request-id".parse().unwrap(),
            ..idempotency::Config::default()
        };
    })
    .await;
    assert_eq!(request.header("idempotency-key"), None);
    let key = json!({ "header": "x-request-id" });
    assert!(judge("structured_field", &request, &key).is_ok());

    let request = received(&delivery(b"{}"), |endpoint| {
        endpoint.idempotency.format = Format::None;
    })
    .await;
    assert_eq!(request.header("idempotency-key"), None);
}

#[tokio::test]
async fn secrets_can_be_rotated_without_a_moment_in_common() {
    let third = "whsec_nNg6aM5pPCi6DbrCRYlyVAA5XWvnOgd/9dV2iWFfQpk=";
    let path = env::temp_dir().join(format!("outbox-relay-rotated-{}", process::id()));
    let replace = |text: &str| {
        let draft = path.with_extension("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &path).unwrap();
    };
    replace(SECRET);
    let receiver = Receiver::start(|_| Reply::status(204)).unwrap();
    let mut endpoint = Endpoint::new("test", receiver.url("/hook").parse().unwrap());
    endpoint.sign.secret_files = vec![path.clone()];
    let client = Client::new(&endpoint).unwrap();
    // What we sign with, and what the receiver knows meanwhile: twice from one secret to the next.
    let steps = [
        (vec![SECRET], vec![SECRET]),
        (vec![OTHER, SECRET], vec![SECRET, OTHER]),
        (vec![OTHER], vec![OTHER]),
        (vec![third, OTHER], vec![OTHER, third]),
        (vec![third], vec![third]),
    ];
    for (attempts, (ours, theirs)) in (0..).zip(steps) {
        replace(&ours.join("\n"));
        sleep(Duration::from_millis(1100)).await;
        let row = Delivery {
            attempts,
            ..delivery(b"{}")
        };
        assert_eq!(client.attempt(&row).await.class, Class::Success);
        let request = receiver.requests().pop().unwrap();
        for known in [SECRET, OTHER, third] {
            let verdict = judge("webhook", &request, &json!({ "secret": known }));
            assert_eq!(verdict.is_ok(), theirs.contains(&known), "{attempts}");
        }
    }
    fs::remove_file(&path).unwrap();
}

/// What the SDK must read of `delivery(…)`; times as Python writes them.
fn attributes() -> Value {
    let key = delivery(b"").key;
    json!({
        "specversion": "1.0",
        "id": delivery(b"").id.to_string(),
        "source": "/shop?a=%20b",
        "type": "order.created.v1",
        "time": "2026-01-02 03:04:05.678901+00:00",
        "subject": key,
        "partitionkey": key,
        "sequence": "0000000000000000042",
        "traceparent": TRACEPARENT,
        "datacontenttype": "application/json",
    })
}

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn events_are_read_by_the_sdk() {
    let source = "/shop?a=%20b".to_owned();
    let shapes = [
        Shape::Binary {
            source: source.clone(),
        },
        Shape::Structured { source },
    ];
    for shape in shapes {
        let mut row = delivery(br#"{"n": 50755254975729665, "s": "\u00e4"}"#);
        row.headers = vec![("traceparent".into(), TRACEPARENT.into())];
        let request = received(&row, |endpoint| endpoint.format.shape = shape.clone()).await;
        let event = judge("cloudevent", &request, &json!({})).unwrap();
        assert_eq!(event["attributes"], attributes(), "{shape:?}");
        let data = json!({ "n": 50_755_254_975_729_665_u64, "s": "ä" });
        assert_eq!(event["data"], data, "{shape:?}");

        let mut row = delivery(b"\x00\xff");
        row.content_type = Some("application/octet-stream".into());
        let request = received(&row, |endpoint| endpoint.format.shape = shape.clone()).await;
        let event = judge("cloudevent", &request, &json!({})).unwrap();
        assert_eq!(event["data"], json!({ "base64": "AP8=" }), "{shape:?}");

        // What lacks an attribute is no event.
        let mut wrong = request.clone();
        wrong.headers.remove("ce-source");
        wrong.body = Bytes::from_static(br#"{"specversion":"1.0","id":"1","type":"t"}"#);
        assert!(judge("cloudevent", &wrong, &json!({})).is_err());
    }
}

#[tokio::test]
async fn batches_of_events_are_read_by_the_sdk() {
    let receiver = Receiver::start(|_| Reply::status(204)).unwrap();
    let mut endpoint = Endpoint::new("test", receiver.url("/").parse().unwrap());
    let source = "/shop?a=%20b".to_owned();
    endpoint.format.shape = Shape::Structured { source };
    endpoint.batch = Some(batch::Config::default());
    endpoint.sign = signed(&[SECRET]);
    let mut first = delivery(br#"{"n": 50755254975729665, "s": "\u00e4"}"#);
    first.headers = vec![("traceparent".into(), TRACEPARENT.into())];
    let second = Delivery {
        id: Uuid::from_u128(2),
        content_type: Some("application/octet-stream".into()),
        ..delivery(b"\x00\xff")
    };
    let client = Client::new(&endpoint).unwrap();
    let answered = client
        .attempt_batch(&[&first, &second], Propagation::Untouched)
        .await;
    assert_eq!(answered.whole.class, Class::Success);
    let request = receiver.requests().remove(0);

    let events = judge("cloudevents_batch", &request, &json!({})).unwrap();
    assert_eq!(events.as_array().unwrap().len(), 2);
    let mut attributes = attributes();
    attributes["idempotencykey"] = json!(first.id.to_string());
    assert_eq!(events[0]["attributes"], attributes);
    let data = json!({ "n": 50_755_254_975_729_665_u64, "s": "ä" });
    assert_eq!(events[0]["data"], data);
    assert_eq!(
        events[1]["attributes"]["idempotencykey"],
        second.id.to_string()
    );
    assert_eq!(events[1]["data"], json!({ "base64": "AP8=" }));
    let secret = json!({ "secret": SECRET });
    assert_eq!(judge("webhook", &request, &secret), Ok(json!(true)));

    let mut wrong = request;
    wrong.body = Bytes::from_static(br#"[{"specversion":"1.0","id":"1","type":"t"}]"#);
    assert!(judge("cloudevents_batch", &wrong, &json!({})).is_err());
}
