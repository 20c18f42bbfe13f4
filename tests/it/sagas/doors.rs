//! Sagas from the command line, and plans from the configuration.
use std::process::Output;

use outbox_relay::lab::receiver::{Receiver, Reply};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{begin, ended, relay};
use crate::support::{
    binary::{Directory, outbox_relay},
    client, database, eventually,
    rows::{SOON, assert_nothing_left, count, one},
    scene::Scene,
};

const CONFIG: &str = r#"
[[retries]]
name = "payments"
base = "50ms"
max_attempts = 2

[[sagas]]
name = "order"

[[sagas.steps]]
name = "reserve"
to = "shop"
do = "/reserve"
undo = "/release"

[[sagas.steps]]
name = "charge"
to = "shop"
do = "/charge"
retry = "payments"
timeout = "2s"
pivot = true
"#;

async fn run(url: &str, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = outbox_relay(url, arguments).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[tokio::test]
async fn a_plan_of_the_configuration_is_pinned_and_its_sagas_are_worked_on() {
    let database = database().await;
    let db = database.connect().await;
    let receiver = Receiver::start(|request| match (&*request.path, request.number) {
        ("/charge", 2 | 3) => Reply::status(503).body("closed"),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), CONFIG);
    let path = config.to_str().unwrap();
    let url = &*database.url;
    let (code, out, err) = run(url, &["check", "-c", path]).await;
    assert_eq!(code, 0, "{out}\n{err}");
    for line in [
        "saga order\n",
        "  reserve → shop: /reserve, undo /release\n",
        "  charge → shop: /charge, the pivot\n    after its last attempt the saga is parked\n    a request may take 2s\n  retries: up to 2 attempts",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }

    let start = "insert into outbox.sagas (name, key) values ('order', 'o-1') returning id";
    let saga: Uuid = one(&db, start).await;
    let unknown = "insert into outbox.sagas (name, key) values ('refund', 'o-1') returning id";
    let unknown: Uuid = one(&db, unknown).await;
    let relay = directory.run(&config, url, "relay");
    assert_eq!(ended(&db, saga).await, "parked", "{}", relay.log());
    let steps: String = one(
        &db,
        "select steps::text from outbox.sagas where name = 'order'",
    )
    .await;
    let steps: Value = serde_json::from_str(&steps).unwrap();
    assert_eq!(steps[1]["timeout"], 2.0);

    let (_, out, _) = run(url, &["saga", "list"]).await;
    assert!(
        out.contains("order o-1  at charge  HTTP 503 Service Unavailable: closed"),
        "{out}"
    );
    assert!(out.contains("refund o-1  at no plan"), "{out}");
    let (_, out, _) = run(url, &["saga", "show", &saga.to_string()]).await;
    for part in [
        "parked, at do charge",
        "after 2 attempts",
        "outputs  { \"reserve\" : null }",
        "charge           unknown",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let (_, out, _) = run(url, &["saga", "show", "--json", &saga.to_string()]).await;
    let life: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(life["status"], "parked");

    let (code, out, _) = run(url, &["saga", "resume", "--name", "order", "--dry-run"]).await;
    assert_eq!(
        (code, out.lines().last().unwrap()),
        (0, "1 sagas are meant: nothing was done")
    );
    let json = async |arguments: &[&str]| {
        let (code, out, err) = run(url, &[arguments, &["--json"]].concat()).await;
        let read = serde_json::from_str::<Value>(&out);
        (
            read.unwrap_or_else(|error| panic!("{error}: {out}{err}")),
            code,
        )
    };
    let (meant, _) = json(&["saga", "resume", "--name", "order", "--dry-run"]).await;
    assert_eq!(
        (&meant[0]["sagas"], &meant[0]["step"]),
        (&1.into(), &"charge".into())
    );
    let start = "insert into outbox.sagas (name, key) values ('refund', 'o-2') returning id";
    let other = one::<Uuid>(&db, start).await.to_string();
    let (cancelled, code) = json(&["saga", "cancel", &other]).await;
    assert_eq!(
        (cancelled, code),
        (json!({"id": other, "status": "compensated"}), 0)
    );
    let (none, code) = json(&["saga", "skip", "--name", "nothing"]).await;
    assert_eq!(
        (none, code),
        (json!({"done": [], "refused": [], "next": null}), 1)
    );
    let (code, _, err) = run(url, &["saga", "resume"]).await;
    assert!(code == 2 && err.contains("say which"), "{code} {err}");
    let (code, _, err) = run(url, &["saga", "resume", &unknown.to_string()]).await;
    assert!(
        code == 1 && err.contains("is not parked: it is new"),
        "{code} {err}"
    );
    let (code, _, err) = run(url, &["saga", "rerun", &saga.to_string(), "--input", "{"]).await;
    assert!(code == 2 && err.contains("a JSON value"), "{code} {err}");
    let (code, out, err) = run(
        url,
        &["saga", "resume", "--name", "order", "--why", "mended"],
    )
    .await;
    assert!(
        code == 0 && out.contains("resume: 1 sagas, 0 refused"),
        "{out} {err}"
    );
    assert_eq!(ended(&db, saga).await, "succeeded");
    let (code, out, _) = run(
        url,
        &["saga", "cancel", &unknown.to_string(), "--by", "ann"],
    )
    .await;
    assert_eq!((code, out.trim()), (0, &*format!("{unknown}: compensated")));
    let (code, out, err) = run(url, &["saga", "skip", "--all"]).await;
    assert!(code == 1 && err.contains("no saga is meant"), "{out} {err}");
}

/// What an asynchronous participant does: it says 202, and answers later.
#[tokio::test]
async fn an_asynchronous_step_is_answered_later_once() {
    let database = database().await;
    let db = database.connect().await;
    let receiver = Receiver::start(|request| match &*request.path {
        "/pack" | "/pick" => Reply::status(202).body("{}"),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let more =
        "[http]\nlisten = \"127.0.0.1:0\"\ncallbacks_url = \"http://outbox.example.com/base/\"\n";
    let config = directory.config(&receiver.url("/"), more);
    let relay = directory.run(&config, &database.url, "relay");
    let listening = || {
        let log = relay.log();
        let line = log
            .lines()
            .find(|line| line.contains("listening for HTTP"))?;
        let line: Value = serde_json::from_str(line).unwrap();
        Some(line["address"].as_str().unwrap().to_owned())
    };
    eventually("it listens", SOON, async || listening().is_some()).await;
    let address = listening().unwrap();
    let plan = r#"[{"name": "pick", "to": "shop", "do": "/pick", "undo": "/unpick", "async": true},
        {"name": "pack", "to": "shop", "do": "/pack", "async": true, "lapse": 0.3}]"#;
    let start = format!(
        "insert into outbox.sagas (name, key, steps) values ('order', 'o-1', $${plan}$$) returning id"
    );
    let saga: Uuid = one(&db, &start).await;
    receiver.wait_for(1, SOON).await.unwrap();
    let told = receiver.requests()[0].clone();
    let token = told.header("saga-token").unwrap().to_owned();
    let callback = told.header("saga-callback").unwrap();
    assert_eq!(
        callback,
        format!("http://outbox.example.com/base/v1/callbacks/{token}")
    );
    let path = |token: &str, more: &str| format!("http://{address}/v1/callbacks/{token}{more}");
    let say = async |url: String, body: &'static str| {
        let answer = client().post(url).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    // Not before its 202 was settled.
    let waits = "select count(*) from outbox.messages where due_at > now() and throttled = 1";
    eventually("it waits", SOON, async || one::<i64>(&db, waits).await == 1).await;
    assert_eq!(say(path(&token, ""), "no JSON").await.0, 400);
    assert_eq!(say(path("x", ""), "{}").await.0, 404);
    assert_eq!(
        say(path(&token, ""), r#"{"shelf": 4.20}"#).await,
        (200, r#"{"status":"running"}"#.into())
    );
    assert_eq!(say(path(&token, ""), "{}").await.0, 404, "it is good once");

    // The second is sent again after its lapse, under the same key and token.
    receiver.wait_for(3, SOON).await.unwrap();
    let (pack, again) = (
        receiver.requests()[1].clone(),
        receiver.requests()[2].clone(),
    );
    assert!(String::from_utf8_lossy(&pack.body).contains(r#"{"shelf": 4.20}"#));
    for name in ["idempotency-key", "saga-token"] {
        assert_eq!(pack.header(name), again.header(name), "{name}");
    }
    let token = pack.header("saga-token").unwrap().to_owned();
    eventually("it is refused", SOON, async || {
        // 503 while it is on its way once more.
        say(path(&token, "/refuse"), "no box").await.0 == 200
    })
    .await;
    assert_eq!(ended(&db, saga).await, "compensated");
    let said = "select failed_step || ': ' || error from outbox.sagas";
    assert_eq!(one::<String>(&db, said).await, "pack: no box");
    let last = receiver.requests().pop().unwrap();
    assert_eq!(last.path, "/unpick");
    let logs = directory.logs();
    assert!(!logs.contains(&token), "a token is a secret");
    let kept = format!("select count(*) from outbox.attempts where request::text like '%{token}%'");
    assert_eq!(one::<i64>(&db, &kept).await, 0);
}

/// The other asynchronous participant: it names a place to ask at.
#[tokio::test]
async fn an_asynchronous_step_is_polled_at_its_location() {
    let scene = Scene::new(|request| match (&*request.path, request.number) {
        ("/hook/pick", _) => Reply::status(202)
            .header("location", "/jobs/7?a=b")
            .header("retry-after", "0"),
        // The second time it has forgotten the job: the step is sent again.
        ("/jobs/7?a=b", 2) => Reply::status(202)
            .header("retry-after", "0")
            .header("location", "/jobs/7?a=b"),
        ("/jobs/7?a=b", 3) => Reply::status(410),
        ("/jobs/7?a=b", _) => Reply::status(200).body("[4.20]"),
        // What is elsewhere is not asked: it would be shown who we are.
        ("/hook/pack", 6) => Reply::status(202).header("location", "http://127.0.0.1:9/jobs/8"),
        _ => Reply::status(200),
    })
    .await;
    let plan = r#"[{"name": "pick", "to": "shop", "do": "/pick", "async": true},
        {"name": "pack", "to": "shop", "do": "/pack", "async": true, "lapse": 0.2}]"#;
    let saga = begin(&scene.client, "o-1", plan).await;
    let relay = relay(&scene, 3);
    assert_eq!(ended(&scene.client, saga).await, "succeeded");
    relay.stop().await;
    let requests = scene.receiver.requests();
    let asked: Vec<_> = requests
        .iter()
        .map(|r| format!("{} {}", r.method, r.path))
        .collect();
    assert_eq!(
        asked,
        [
            "POST /hook/pick",
            "GET /jobs/7?a=b",
            "GET /jobs/7?a=b",
            "POST /hook/pick",
            "GET /jobs/7?a=b",
            "POST /hook/pack",
            "POST /hook/pack",
        ]
    );
    assert_eq!(
        requests[0].header("idempotency-key"),
        requests[3].header("idempotency-key")
    );
    assert_eq!(requests[1].header("saga-step"), Some("pick"));
    let outputs: String = one(&scene.client, "select outputs::text from outbox.sagas").await;
    assert_eq!(outputs, r#"{ "pick" : [4.20], "pack" : null }"#);
    let paused = count(
        &scene.client,
        "endpoints where paused_at is not null or not_before is not null",
    )
    .await;
    assert_eq!(
        paused, 0,
        "what became of one job is no word about the endpoint"
    );
    assert_nothing_left(&scene.client).await;
}
