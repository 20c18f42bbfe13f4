//! Several messages in one request: what a receiver gets, and what becomes of each.
mod bounds;

use std::time::Duration;

use bytes::Bytes;
use outbox_relay::{
    app, config,
    delivery::batch,
    lab::receiver::{Reply, Request},
    relay::Relay,
    retry,
};
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    support::{
        eventually,
        relay::start,
        rows::{SOON, all_settled, assert_nothing_left, count, insert, one, outcomes},
        scene::Scene,
    },
    verifiers::judge,
};

/// A relay whose requests have up to so many messages.
fn batched(scene: &Scene, messages: usize) -> Relay {
    let mut relay = scene.relay();
    relay.endpoints[0].batch = Some(batch::Config {
        messages,
        ..batch::Config::default()
    });
    relay
}

/// The messages of a request.
fn items(body: &Bytes) -> Vec<Value> {
    serde_json::from_slice(body).unwrap()
}

/// The number that a message's payload holds.
fn number(item: &Value) -> u64 {
    item["payload"]["n"].as_u64().unwrap()
}

/// A 207 with what `status` says of each message, under its id unless it says another one.
fn multi_status(request: &Request, mut status: impl FnMut(&Value) -> Value) -> Reply {
    let result = |item: &Value| {
        let mut result = status(item);
        if result.get("id").is_none() {
            result["id"] = item["id"].clone();
        }
        result
    };
    let results: Vec<Value> = items(&request.body).iter().map(result).collect();
    Reply::status(207).body(json!({ "results": results }).to_string())
}

fn sizes(scene: &Scene) -> Vec<usize> {
    let requests = scene.receiver.requests();
    requests
        .iter()
        .map(|request| {
            let size = items(&request.body).len();
            assert_eq!(request.header("outbox-batch"), Some(&*size.to_string()));
            size
        })
        .collect()
}

/// Until nothing is pending.
async fn run(scene: &Scene, relay: Relay) {
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_nothing_left(&scene.client).await;
}

async fn id(client: &Client, number: u64) -> Uuid {
    let query = format!("select id from outbox.messages where (payload->>'n')::int = {number}");
    one(client, &query).await
}

// === what a receiver gets ===

#[tokio::test]
async fn rows_arrive_together_with_their_bytes_in_the_order_of_seq() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let payload = r#"{"n": 50755254975729665, "f": 1e400,  "a":1, "a":2, "ü": "\u00e9"}"#;
    let insert = format!(
        "insert into outbox.messages (topic, key, type, headers, payload, body, content_type) values
         ('t', 'order 7', 'Paid', '{{\"X-Shop\": \"a\"}}', '{payload}', null, null),
         ('t', null, null, null, null, '\\x00ff', 'image/png'),
         ('t', null, null, null, null, null, null),
         ('u', null, null, null, '3', null, null)"
    );
    scene.client.batch_execute(&insert).await.unwrap();
    run(&scene, batched(&scene, 100)).await;
    let requests = scene.receiver.requests();
    let of = |topic: &str| {
        let mut all = requests.iter();
        let found = all.find(|request| request.header("outbox-topic") == Some(topic));
        found.unwrap()
    };
    assert_eq!(requests.len(), 2, "a batch is of one topic");
    let request = of("t");
    assert_eq!(request.path, "/hook?x=1");
    for name in ["idempotency-key", "outbox-message-id", "outbox-attempt"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    let text = std::str::from_utf8(&request.body).unwrap();
    assert!(
        text.contains(&format!(r#""payload":{payload}}}"#)),
        "{text}"
    );
    // What JSON libraries read, but for the number that they can't.
    let text = text.replace("1e400", "1");
    let found: Vec<Value> = serde_json::from_str(&text).unwrap();
    let seqs: Vec<i64> = found
        .iter()
        .map(|item| item["seq"].as_i64().unwrap())
        .collect();
    assert!(seqs.is_sorted() && seqs.len() == 3, "{seqs:?}");
    assert_eq!(found[0]["key"], "order 7");
    assert_eq!(found[0]["type"], "Paid");
    assert_eq!(found[0]["headers"], json!({ "X-Shop": "a" }));
    assert_eq!(found[0]["attempt"], 1);
    assert_eq!(found[1]["body"], "AP8=");
    assert_eq!(found[1]["content_type"], "image/png");
    let names: Vec<&String> = found[2].as_object().unwrap().keys().collect();
    let want = [
        "attempt",
        "created_at",
        "id",
        "idempotency_key",
        "seq",
        "topic",
    ];
    assert_eq!(names, want);
    assert_eq!(
        count(&scene.client, "attempts where settlement = 'delivered'").await,
        4
    );
    assert_eq!(count(&scene.client, "delivered").await, 4);
}

#[tokio::test]
async fn a_file_says_what_a_batch_is() {
    let scene = Scene::new(|_| Reply::status(204)).await;
    let text = format!(
        r#"
        [defaults]
        batch.messages = 4

        [[endpoints]]
        name = "shop"
        url = "{}"
        format = "cloudevents-structured"
        source = "/shop"
        gzip_above = "1MiB"
        sign.secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]

        [[routes]]
        topic = "**"
        to = ["shop"]
        "#,
        scene.receiver.url("/in/{topic}"),
    );
    let variables = [("DATABASE_URL".to_owned(), scene.database.url.clone())].into();
    let config = config::parse("relay.toml", &text, &variables, "host").unwrap();
    insert(&scene.client, "order.paid", 10).await;
    let delivered = async { scene.receiver.wait_for(3, SOON).await.unwrap() };
    Box::pin(app::run(config, None, false, delivered))
        .await
        .unwrap();
    let mut seen = Vec::new();
    for request in scene.receiver.requests() {
        assert_eq!(request.path, "/in/order.paid");
        let secret = json!({ "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" });
        assert_eq!(judge("webhook", &request, &secret), Ok(json!(true)));
        let events = judge("cloudevents_batch", &request, &json!({})).unwrap();
        let events = events.as_array().unwrap();
        assert_eq!(
            request.header("outbox-batch"),
            Some(&*events.len().to_string())
        );
        assert!(events.len() <= 4);
        for event in events {
            let attributes = &event["attributes"];
            assert_eq!(attributes["idempotencykey"], attributes["id"]);
            seen.push(event["data"]["n"].as_u64().unwrap());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
}

// === what becomes of each ===

#[tokio::test]
async fn each_message_is_settled_by_its_own_result() {
    let scene = Scene::new(|request| {
        multi_status(request, |item| {
            match (number(item), item["attempt"].as_u64()) {
                (2, Some(1)) => json!({ "status": 503, "error": "busy", "retry_after": 1 }),
                (3, _) => json!({ "status": 422, "error": "no such order" }),
                // Said of a message that is not here: 4 is missing.
                (4, Some(1)) => json!({ "status": 200, "id": Uuid::nil() }),
                (5, Some(1)) => json!({ "status": 999 }),
                (_, _) => json!({ "status": 200 }),
            }
        })
    })
    .await;
    insert(&scene.client, "t", 5).await;
    let mut ids = Vec::new();
    for n in 1..=5 {
        ids.push(id(&scene.client, n).await);
    }
    let mut relay = batched(&scene, 100);
    relay.endpoints[0].retry.backoff = retry::Backoff::Full {
        base: Duration::from_millis(50),
        factor: 1.0,
        cap: Duration::from_secs(5),
    };
    run(&scene, relay).await;
    let want: [&[&str]; 5] = [
        &["success"],
        &["unavailable", "success"],
        &["rejected"],
        &["protocol", "success"],
        &["protocol", "success"],
    ];
    for (id, want) in ids.iter().zip(want) {
        assert_eq!(outcomes(&scene.client, *id).await, want);
    }
    let told = |id: Uuid| {
        format!(
            "select status || '|' || settlement || '|' || coalesce(error, '-') || '|' || response
               from outbox.attempts where id = '{id}' and attempt = 1"
        )
    };
    let text: String = one(&scene.client, &told(ids[1])).await;
    let want = format!(
        r#"503|retry|HTTP 503 Service Unavailable: busy|{{"error":"busy","id":"{}","retry_after":1,"status":503}}"#,
        ids[1]
    );
    assert_eq!(text, want);
    let text: String = one(&scene.client, &told(ids[2])).await;
    assert!(text.starts_with("422|dead|HTTP 422 Unprocessable Entity: no such order|"));
    let text: String = one(&scene.client, &told(ids[3])).await;
    let want = "207|retry|HTTP 207 Multi-Status, but it has no result for this message|{";
    assert!(text.starts_with(want), "{text}");
    let text: String = one(&scene.client, &told(ids[4])).await;
    assert!(text.starts_with(
        "207|retry|HTTP 207 Multi-Status, but its result for this message has no status|"
    ));
    assert_eq!(scene.dead().await, ("rejected".into(), Some(422), 1));
    // The delay was the one message's: the endpoint was not closed.
    let waited = format!(
        "select extract(epoch from max(started_at) - min(started_at))::float8
           from outbox.attempts where id = '{}'",
        ids[1]
    );
    let seconds: f64 = one(&scene.client, &waited).await;
    assert!(seconds >= 0.9, "{seconds}");
    let closed = "endpoints where not_before is not null or paused_at is not null";
    assert_eq!(count(&scene.client, closed).await, 0);
}

#[tokio::test]
async fn what_is_missing_in_an_answer_is_tried_again() {
    let scene = Scene::new(|request| match request.number {
        1 => {
            let first = &items(&request.body)[0]["id"];
            let results = json!({ "results": [{ "id": first, "status": 200 }] });
            Reply::status(200).body(results.to_string())
        }
        2 => Reply::status(207).body("<html>"),
        _ => Reply::status(200).body("ok"),
    })
    .await;
    insert(&scene.client, "t", 3).await;
    run(&scene, batched(&scene, 100)).await;
    let total: i64 = sizes(&scene).iter().sum::<usize>().try_into().unwrap();
    assert_eq!(
        count(&scene.client, "attempts").await,
        total,
        "a row of history for each"
    );
    let told: Vec<String> = {
        let query =
            "select distinct error from outbox.attempts where outcome = 'protocol' order by 1";
        let rows = scene.client.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let want = [
        "HTTP 200 OK, but it has no result for this message",
        "HTTP 207 Multi-Status, but its body is no document with results",
    ];
    assert_eq!(told, want);
    assert_eq!(
        count(&scene.client, "attempts where outcome = 'success'").await,
        3
    );
}

#[tokio::test]
async fn without_results_all_share_one_outcome_and_have_a_history_each() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(503).body("busy"),
        _ => Reply::status(200).body("thanks"),
    })
    .await;
    insert(&scene.client, "t", 20).await;
    run(&scene, batched(&scene, 100)).await;
    assert_eq!(sizes(&scene)[0], 20);
    for (attempt, outcome, response) in [(1, "unavailable", "busy"), (2, "success", "thanks")] {
        let rows = format!(
            "attempts where attempt = {attempt} and outcome = '{outcome}' and response = '{response}'"
        );
        assert_eq!(count(&scene.client, &rows).await, 20, "{rows}");
    }
    assert_eq!(count(&scene.client, "attempts").await, 40);
    assert_eq!(
        count(&scene.client, "delivered where attempts = 2").await,
        20
    );
}

#[tokio::test]
async fn one_poison_message_dies_alone() {
    let scene = Scene::new(|request| {
        let poison = items(&request.body).iter().any(|item| number(item) == 7);
        Reply::status(if poison { 422 } else { 200 })
    })
    .await;
    insert(&scene.client, "t", 20).await;
    run(&scene, batched(&scene, 100)).await;
    let mut want = vec![20];
    want.extend([1; 20]);
    assert_eq!(sizes(&scene), want);
    assert_eq!(scene.dead().await, ("rejected".into(), Some(422), 1));
    assert_eq!(
        count(&scene.client, "delivered where attempts = 1").await,
        19
    );
    assert_eq!(count(&scene.client, "attempts").await, 20);
}

#[tokio::test]
async fn one_that_breaks_the_receiver_takes_no_neighbour_to_death() {
    let scene = Scene::new(|request| {
        let poison = items(&request.body).iter().any(|item| number(item) == 7);
        if poison {
            Reply::hang_up()
        } else {
            Reply::status(200)
        }
    })
    .await;
    insert(&scene.client, "t", 10).await;
    let mut relay = batched(&scene, 100);
    relay.endpoints[0].retry.max_attempts = 5;
    run(&scene, relay).await;
    let (reason, status, attempts) = scene.dead().await;
    assert_eq!((reason.as_str(), status, attempts), ("attempts", None, 5));
    assert_eq!(count(&scene.client, "delivered").await, 9);
    assert_eq!(
        count(&scene.client, "delivered where attempts > 4").await,
        0
    );
    for request in scene.receiver.requests() {
        let items = items(&request.body);
        let fourth = items.iter().any(|item| item["attempt"].as_u64() >= Some(4));
        assert!(!fourth || items.len() == 1);
    }
}

#[tokio::test]
async fn a_result_can_pause_the_endpoint_as_an_answer_can() {
    let scene = Scene::new(|request| {
        multi_status(request, |item| match number(item) {
            2 => json!({ "status": 410 }),
            _ => json!({ "status": 200 }),
        })
    })
    .await;
    insert(&scene.client, "t", 3).await;
    let relay = start(batched(&scene, 100));
    eventually("it is paused", SOON, async || {
        count(&scene.client, "endpoints where paused_at is not null").await == 1
    })
    .await;
    relay.stop().await;
    assert_eq!(count(&scene.client, "messages where attempts = 0").await, 1);
    assert_eq!(count(&scene.client, "delivered").await, 2);
}
