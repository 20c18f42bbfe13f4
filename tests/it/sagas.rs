//! Work of several steps: what participants receive, what follows from their answers, and what an operator can do.
mod doors;
mod example;
mod faults;
mod next_step;
mod plans;
mod verbs;

use std::sync::{Arc, Mutex};

use outbox_relay::{
    lab::receiver::{Reply, Request},
    relay::Relay,
};
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    eventually,
    relay::{Running, start},
    rows::{SOON, assert_nothing_left, count, one},
    scene::Scene,
};

/// Three participants behind one endpoint; the last step is the pivot.
const PLAN: &str = r#"[{"name": "reserve", "to": "shop", "do": "/reserve", "undo": "/release"},
    {"name": "charge", "to": "shop", "do": "/charge", "undo": "/refund"},
    {"name": "ship", "to": "shop", "do": "/ship", "pivot": true}]"#;

/// Starts a saga, in its own transaction.
async fn begin(client: &Client, key: &str, plan: &str) -> Uuid {
    let insert = format!(
        "insert into outbox.sagas (name, key, input, steps)
         values ('order', '{key}', '{{\"total\": 10.10}}', $${plan}$$) returning id"
    );
    one(client, &insert).await
}

/// Waits until the saga is over, or parked.
async fn ended(client: &Client, saga: Uuid) -> String {
    let query = format!("select status from outbox.sagas where id = '{saga}'");
    eventually("the saga has ended", SOON, async || {
        let status: String = one(client, &query).await;
        ["succeeded", "compensated", "parked"].contains(&&*status)
    })
    .await;
    one(client, &query).await
}

fn header<'r>(request: &'r Request, name: &str) -> &'r str {
    request.header(name).unwrap_or_default()
}

/// What was asked, in order.
fn asked(scene: &Scene) -> Vec<String> {
    let requests = scene.receiver.requests();
    requests.into_iter().map(|request| request.path).collect()
}

/// A scene whose receiver answers by path: the status, or the number of the request of that path and the script's word.
async fn scene(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Scene {
    let seen: Mutex<std::collections::HashMap<String, usize>> = Mutex::default();
    Scene::new(move |request| {
        let path = request.path.clone();
        let path = path
            .split('?')
            .next()
            .unwrap()
            .trim_start_matches("/hook")
            .to_owned();
        let mut seen = seen.lock().unwrap();
        let number = seen.entry(path.clone()).or_default();
        *number += 1;
        answer(&path, *number)
    })
    .await
}

fn relay(scene: &Scene, attempts: u32) -> Running {
    let mut relay: Relay = scene.relay();
    relay.endpoints[0].url = scene.receiver.url("/hook").parse().unwrap();
    relay.endpoints[0].retry.max_attempts = attempts;
    start(relay)
}

#[tokio::test]
async fn each_step_waits_for_the_one_before_and_gets_what_it_answered() {
    let scene = scene(|path, _| match path {
        "/reserve" => Reply::status(201).body(r#"{"id": 7, "price": 1.10}"#),
        "/charge" => Reply::status(200).body("thanks"),
        _ => Reply::status(204),
    })
    .await;
    let saga = begin(&scene.client, "o-1", PLAN).await;
    let relay = relay(&scene, 3);
    assert_eq!(ended(&scene.client, saga).await, "succeeded");
    relay.stop().await;
    assert_nothing_left(&scene.client).await;

    let requests = scene.receiver.requests();
    let [reserve, charge, ship] = requests.as_slice() else {
        panic!("{} requests", requests.len())
    };
    for (request, step) in [(reserve, "reserve"), (charge, "charge"), (ship, "ship")] {
        assert_eq!(request.method, "POST");
        assert_eq!(request.path, format!("/hook/{step}"));
        for (name, value) in [
            ("saga-id", &*saga.to_string()),
            ("saga-name", "order"),
            ("saga-step", step),
            ("saga-phase", "do"),
            ("saga-attempt", "1"),
            ("saga-deadline", ""),
            ("saga-forward-outcome", ""),
            ("outbox-topic", "saga:order"),
            ("outbox-key", "o-1"),
            ("content-type", "application/json"),
        ] {
            assert_eq!(header(request, name), value, "{step} {name}");
        }
        let id = header(request, "outbox-message-id");
        assert_eq!(header(request, "idempotency-key"), format!("\"{id}\""));
    }
    let keys: std::collections::BTreeSet<_> = requests
        .iter()
        .map(|request| header(request, "idempotency-key").to_owned())
        .collect();
    assert_eq!(keys.len(), 3);
    let body = |request: &Request| serde_json::from_slice::<Value>(&request.body).unwrap();
    let input = json!({"total": 10.10});
    assert_eq!(body(reserve), json!({"input": input, "outputs": {}}));
    let reserved = json!({"id": 7, "price": 1.10});
    assert_eq!(
        body(ship),
        json!({"input": input, "outputs": {"reserve": reserved, "charge": null}})
    );
    let text = String::from_utf8(ship.body.to_vec()).unwrap();
    assert!(text.contains("1.10"), "as it was written: {text}");
    let trail: Value = {
        let query = "select trail::text from outbox.sagas";
        serde_json::from_str(&one::<String>(&scene.client, query).await).unwrap()
    };
    let events: Vec<_> = trail
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["event"])
        .collect();
    assert_eq!(events, ["done", "done", "done"]);
}

#[tokio::test]
async fn a_definite_no_undoes_what_was_done_the_last_first() {
    let scene = scene(|path, number| match (path, number) {
        ("/reserve", _) => Reply::status(200).body("[1]"),
        ("/ship", _) => Reply::status(422).body("no such address"),
        // What is gone is undone.
        ("/refund", 2) => Reply::status(410),
        ("/refund", _) => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    let saga = begin(&scene.client, "o-1", PLAN).await;
    let relay = relay(&scene, 5);
    assert_eq!(ended(&scene.client, saga).await, "compensated");
    relay.stop().await;
    assert_nothing_left(&scene.client).await;
    let paths = [
        "/reserve", "/charge", "/ship", "/refund", "/refund", "/release",
    ];
    assert_eq!(asked(&scene), paths.map(|path| format!("/hook{path}")));
    let requests = scene.receiver.requests();
    let (charge, first, second) = (&requests[1], &requests[3], &requests[4]);
    assert_ne!(
        header(charge, "idempotency-key"),
        header(first, "idempotency-key")
    );
    assert_eq!(
        header(first, "idempotency-key"),
        header(second, "idempotency-key")
    );
    assert_eq!(header(second, "saga-attempt"), "2");
    assert_eq!(header(second, "saga-phase"), "undo");
    assert_eq!(header(second, "saga-forward-outcome"), "done");
    let release: Value = serde_json::from_slice(&requests[5].body).unwrap();
    assert_eq!(release["output"], json!([1]));
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
    let row = "select failed_step || ': ' || error from outbox.sagas";
    let said: String = one(&scene.client, row).await;
    assert_eq!(said, "ship: HTTP 422 Unprocessable Entity: no such address");
    let undone = count(
        &scene.client,
        "attempts where settlement = 'undo' and reason = 'rejected'",
    )
    .await;
    assert_eq!(undone, 1);
    let paused = count(&scene.client, "endpoints where paused_at is not null").await;
    assert_eq!(paused, 0, "a 410 to an undo is no wish to be left alone");
}

#[tokio::test]
async fn after_its_last_attempt_a_step_parks_or_undoes_itself_too() {
    let compensate = PLAN.replace(
        r#""undo": "/refund""#,
        r#""undo": "/refund", "on_exhausted": "compensate""#,
    );
    for (plan, status, paths) in [
        (PLAN, "parked", &["/reserve", "/charge", "/charge"][..]),
        (
            &compensate,
            "compensated",
            &["/reserve", "/charge", "/charge", "/refund", "/release"],
        ),
    ] {
        let scene = scene(|path, _| match path {
            "/charge" => Reply::status(503),
            _ => Reply::status(200),
        })
        .await;
        let saga = begin(&scene.client, "o-1", plan).await;
        let relay = relay(&scene, 2);
        assert_eq!(ended(&scene.client, saga).await, status);
        relay.stop().await;
        let want: Vec<_> = paths.iter().map(|path| format!("/hook{path}")).collect();
        assert_eq!(asked(&scene), want);
        let parked = status == "parked";
        assert_eq!(
            count(&scene.client, "dead_letters").await,
            i64::from(parked)
        );
        if !parked {
            let refund = &scene.receiver.requests()[3];
            assert_eq!(header(refund, "saga-forward-outcome"), "unknown");
        }
        assert_nothing_left(&scene.client).await;
    }
}

#[tokio::test]
async fn a_repeated_start_is_no_second_saga_and_a_rolled_back_one_none() {
    let scene = scene(|_, _| Reply::status(200)).await;
    let saga = begin(&scene.client, "o-1", PLAN).await;
    let again = "insert into outbox.sagas (name, key, steps) values ('order', 'o-1', '[{\"name\": \"x\", \"to\": \"shop\", \"do\": \"/x\"}]')
                 on conflict do nothing";
    assert_eq!(scene.client.execute(again, &[]).await.unwrap(), 0);
    let rolled_back = again.replace("o-1", "o-2");
    let text = format!("begin; {rolled_back}; rollback");
    scene.client.batch_execute(&text).await.unwrap();
    let relay = relay(&scene, 2);
    assert_eq!(ended(&scene.client, saga).await, "succeeded");
    relay.stop().await;
    assert_eq!(count(&scene.client, "sagas").await, 1);
    assert_eq!(scene.receiver.count(), 3);
}

#[tokio::test]
async fn an_insert_wakes_a_relay_that_sleeps() {
    let scene = Arc::new(scene(|_, _| Reply::status(200)).await);
    let mut sleeper = scene.relay();
    sleeper.config.poll = std::time::Duration::from_secs(30);
    sleeper.config.idle = std::time::Duration::from_secs(30);
    let relay = start(sleeper);
    let keeper = "select count(*) from pg_locks where locktype = 'advisory' and classid = 1870034018 and objid = 1 and mode = 'ExclusiveLock'";
    eventually("the relay sleeps", SOON, async || {
        one::<i64>(&scene.client, keeper).await > 0
    })
    .await;
    let saga = begin(&scene.client, "o-1", PLAN).await;
    assert_eq!(ended(&scene.client, saga).await, "succeeded");
    relay.stop().await;
}
