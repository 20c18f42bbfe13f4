//! `POST /v1/webhooks/NAME`: what others send, signed in their ways, becomes a message once.
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use reqwest::StatusCode;
use sha2::Sha256;

use super::{
    Stage,
    send::{answered, id, signature},
};
use crate::support::{
    client,
    rows::{SOON, count, one},
};

const GITHUB: &str = "It's a Secret to Everybody";

fn hex(secret: &str, content: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(content);
    let mac = mac.finalize().into_bytes();
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Stage {
    async fn hook(
        &self,
        name: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (StatusCode, serde_json::Value, Option<String>) {
        let url = format!("http://{}/v1/webhooks/{name}", self.relay.address);
        let mut request = client().post(url).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answered(request).await
    }
}

#[tokio::test]
async fn a_push_becomes_one_message_however_often_it_comes() {
    let stage = Stage::new(0).await;
    let body = br#"{"ref": "main", "id": 50755254975729665, "size": 1.50}"#;
    let good = format!("sha256={}", hex(GITHUB, body));
    let headers = |delivery: &'static str| {
        [
            ("Content-Type", "application/json"),
            ("X-GitHub-Event", "push"),
            ("X-GitHub-Hook-ID", "7"),
            ("X-GitHub-Delivery", delivery),
            ("X-Hub-Signature-256", &good),
        ]
    };
    let first = id(&stage.hook("code", &headers("d-1"), body).await);
    assert_eq!(id(&stage.hook("code", &headers("d-1"), body).await), first);
    stage.receiver.wait_for(1, SOON).await.unwrap();
    let second = id(&stage.hook("code", &headers("d-2"), body).await);
    assert_ne!(second, first);
    stage.receiver.wait_for(2, SOON).await.unwrap();
    let requests = stage.receiver.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(&requests[0].body[..], body, "every digit as it came");
    for (name, value) in [
        ("outbox-topic", Some("code.push")),
        ("outbox-type", Some("push")),
        ("x-github-event", Some("push")),
        ("x-github-hook-id", None),
        ("x-hub-signature-256", None),
        ("content-type", Some("application/json")),
    ] {
        assert_eq!(requests[0].header(name), value, "{name}");
    }
    let caller = "select string_agg(caller || ' ' || key, ',' order by key) from outbox.requests";
    assert_eq!(
        one::<String>(&stage.client, caller).await,
        "webhook code d-1,webhook code d-2"
    );
}

#[tokio::test]
async fn what_is_no_json_is_a_body() {
    let stage = Stage::new(0).await;
    for (delivery, kind, body) in [
        (
            "a",
            Some("application/x-www-form-urlencoded"),
            &b"payload=%7B%7D"[..],
        ),
        ("b", Some("application/json"), &b"{\"broken\": "[..]),
        ("c", None, &[0, 255, 128][..]),
    ] {
        let sign = format!("sha256={}", hex(GITHUB, body));
        let mut headers = vec![
            ("X-GitHub-Delivery", delivery),
            ("X-Hub-Signature-256", &*sign),
        ];
        headers.extend(kind.map(|kind| ("Content-Type", kind)));
        let before = stage.receiver.count();
        id(&stage.hook("code", &headers, body).await);
        stage.receiver.wait_for(before + 1, SOON).await.unwrap();
        let requests = stage.receiver.requests();
        let request = requests.last().unwrap();
        assert_eq!(&request.body[..], body);
        let kind = kind.unwrap_or("application/octet-stream");
        assert_eq!(request.header("content-type"), Some(kind));
    }
}

#[tokio::test]
async fn the_other_ways_to_sign_have_a_time_and_an_id_of_their_own() {
    let stage = Stage::new(0).await;
    let now = Timestamp::now().as_second();
    let event = r#"{"id": "evt_1", "type": "charge"}"#;
    let stripe = |at: i64| {
        let mac = hex("whsec_test", format!("{at}.{event}").as_bytes());
        format!("t={at},v1={mac}")
    };
    let json = ("Content-Type", "application/json");
    let send = async |sign: &str| {
        let headers = [json, ("Stripe-Signature", sign)];
        stage.hook("pay", &headers, event.as_bytes()).await
    };
    let first = id(&send(&stripe(now)).await);
    assert_eq!(id(&send(&stripe(now - 30)).await), first, "sent again");
    assert_eq!(send(&stripe(now - 400)).await.0, StatusCode::UNAUTHORIZED);

    let mail = async |id: &str, body: &str| {
        let (sign, at) = (signature(id, now, "{}"), now.to_string());
        let headers = [
            json,
            ("webhook-id", id),
            ("webhook-timestamp", &*at),
            ("webhook-signature", &*sign),
        ];
        stage.hook("mail", &headers, body.as_bytes()).await
    };
    let first = id(&mail("m1", "{}").await);
    assert_eq!(id(&mail("m1", "{}").await), first);
    assert_ne!(id(&mail("m2", "{}").await), first);
    assert_eq!(mail("m3", "[]").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(count(&stage.client, "requests").await, 3);
}

#[tokio::test]
async fn what_is_not_signed_well_is_not_taken() {
    let stage = Stage::new(0).await;
    let body = b"{}";
    let sign = format!("sha256={}", hex(GITHUB, body));
    let wrong = format!("sha256={}", hex("another", body));
    let id = ("X-GitHub-Delivery", "d");
    for (name, headers, status) in [
        ("code", vec![id], StatusCode::UNAUTHORIZED),
        (
            "code",
            vec![id, ("X-Hub-Signature-256", &wrong)],
            StatusCode::UNAUTHORIZED,
        ),
        (
            "code",
            vec![id, ("X-Hub-Signature-256", "sha256=zz")],
            StatusCode::UNAUTHORIZED,
        ),
        (
            "code",
            vec![("X-Hub-Signature-256", &sign)],
            StatusCode::BAD_REQUEST,
        ),
        (
            "pay",
            vec![id, ("X-Hub-Signature-256", &sign)],
            StatusCode::UNAUTHORIZED,
        ),
        (
            "cod",
            vec![id, ("X-Hub-Signature-256", &sign)],
            StatusCode::NOT_FOUND,
        ),
    ] {
        let (is, problem, _) = stage.hook(name, &headers, body).await;
        assert_eq!(is, status, "{name} {headers:?}: {problem}");
    }
    assert_eq!(count(&stage.client, "messages").await, 0);
    assert_eq!(count(&stage.client, "requests").await, 0);
}
