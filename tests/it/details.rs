//! What the history keeps of a request and its answer: enough to look into a failure, nothing that is secret, and nothing of a success
//! unless it is wanted.

use outbox_relay::{
    delivery::{Details, Endpoint, batch},
    lab::receiver::Reply,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    binary::outbox_relay,
    relay::{endpoint, relay, start},
    rows::{SOON, all_settled, insert_one},
    scene::Scene,
};

const PAYLOAD: &str = r#"{"n":1.50}"#;

/// Fails the first request in a way that is tried again, and takes the second.
async fn scene() -> Scene {
    Scene::new(|request| match request.number {
        1 => Reply::status(503)
            .header("x-why", "maintenance")
            .header("set-cookie", "session=abcdefgh")
            .body("later"),
        _ => Reply::status(200).header("x-id", "7"),
    })
    .await
}

/// Delivers one row to an endpoint that is set up so, and returns what the history has of each attempt.
async fn kept(scene: &Scene, change: impl FnOnce(&mut Endpoint)) -> Vec<[Value; 2]> {
    let values = format!(
        "'{PAYLOAD}', '{{\"authorization\": \"Bearer abcdefgh\", \"x-tenant\": \"acme\"}}'"
    );
    insert_one(&scene.client, "payload, headers", &values).await;
    let mut endpoint = endpoint("shop", &scene.receiver.url("/hook?secret=1"));
    change(&mut endpoint);
    let running = start(relay(&scene.database.url, endpoint));
    all_settled(&scene.client, SOON).await;
    running.stop().await;
    let query = "select coalesce(request, 'null'), coalesce(response_headers, 'null')
                   from outbox.attempts order by started_at";
    let rows = scene.client.query(query, &[]).await.unwrap();
    rows.iter().map(|row| [row.get(0), row.get(1)]).collect()
}

#[tokio::test]
async fn a_failure_has_what_was_sent_and_answered_and_a_success_has_not() {
    let scene = scene().await;
    let kept = kept(&scene, |_| {}).await;
    let [[request, answer], success] = &kept[..] else {
        panic!("two attempts: {kept:?}");
    };
    let digest = Sha256::digest(PAYLOAD);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(request["method"], "POST");
    assert_eq!(request["url"], scene.receiver.url("/hook?…"));
    assert_eq!(request["size"], PAYLOAD.len());
    assert_eq!(request["sha256"], digest);
    let headers = &request["headers"];
    let got = &scene.receiver.requests()[0];
    assert_eq!(headers["authorization"], "[redacted]");
    for name in ["x-tenant", "idempotency-key", "outbox-attempt"] {
        assert_eq!(headers[name], *got.header(name).unwrap(), "{name}");
    }
    assert_eq!(answer["x-why"], "maintenance");
    assert_eq!(answer["set-cookie"], "[redacted]");
    assert_eq!(success, &[Value::Null, Value::Null]);

    // For people, and for programs.
    let id: uuid::Uuid = got.header("outbox-message-id").unwrap().parse().unwrap();
    let shown = |extra: &'static [&str]| {
        let (url, id) = (scene.database.url.clone(), id.to_string());
        async move {
            let mut arguments = vec!["show", &id];
            arguments.extend(extra);
            String::from_utf8(outbox_relay(&url, &arguments).await.stdout).unwrap()
        }
    };
    let text = shown(&[]).await;
    for part in [
        &format!("attempt 1 sent {} bytes (sha256 {digest})", PAYLOAD.len()),
        &format!("  POST {}", scene.receiver.url("/hook?…")),
        "  x-tenant: acme",
        "and was answered 503",
        "  x-why: maintenance",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let life: Value = serde_json::from_str(&shown(&["--json"]).await).unwrap();
    assert_eq!(life["attempts"][0]["request"], *request);
    let lines = outbox_relay(&scene.database.url, &["history", "--failures", "--json"]).await;
    let line: Value = serde_json::from_slice(&lines.stdout).unwrap();
    assert_eq!(line[0]["response_headers"], *answer);
}

#[tokio::test]
async fn everything_can_be_kept_or_nothing() {
    let all = scene().await;
    let kept_of_all = kept(&all, |endpoint| endpoint.details = Details::All).await;
    assert_eq!(kept_of_all[1][0]["headers"]["outbox-attempt"], "2");
    assert_eq!(kept_of_all[1][1]["x-id"], "7");
    let none = scene().await;
    let kept_of_none = kept(&none, |endpoint| endpoint.details = Details::None).await;
    assert_eq!(kept_of_none, vec![[Value::Null, Value::Null]; 2]);
}

#[tokio::test]
async fn what_never_came_to_an_answer_has_its_request() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::hang_up(),
        _ => Reply::status(200),
    })
    .await;
    let kept = kept(&scene, |_| {}).await;
    assert_eq!(kept[0][0]["method"], "POST");
    assert_eq!(kept[0][1], Value::Null);
}

#[tokio::test]
async fn in_a_batch_each_message_that_failed_has_the_request_of_all() {
    let scene = Scene::new(|request| {
        let items: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
        let result = |(n, item): (usize, &Value)| {
            let status = if n == 0 { 422 } else { 200 };
            json!({"id": item["id"], "status": status})
        };
        let results: Vec<Value> = items.iter().enumerate().map(result).collect();
        Reply::status(207).body(json!({ "results": results }).to_string())
    })
    .await;
    insert_one(&scene.client, "payload", "'{}'").await;
    let kept = kept(&scene, |endpoint| {
        endpoint.batch = Some(batch::Config::default());
    })
    .await;
    let with: Vec<_> = kept.iter().filter(|of| !of[0].is_null()).collect();
    let [[request, _]] = with[..] else {
        panic!("one of two: {kept:?}");
    };
    assert_eq!(request["headers"]["outbox-batch"], "2");
    assert_eq!(request["size"], scene.receiver.requests()[0].body.len());
}
