//! Sagas from the command line, and plans from the configuration.
use std::process::Output;

use outbox_relay::lab::receiver::{Receiver, Reply};
use serde_json::Value;
use uuid::Uuid;

use super::ended;
use crate::support::{
    binary::{Directory, outbox_relay},
    database,
    rows::one,
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
    let client = database.connect().await;
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
    let saga: Uuid = one(&client, start).await;
    let unknown = "insert into outbox.sagas (name, key) values ('refund', 'o-1') returning id";
    let unknown: Uuid = one(&client, unknown).await;
    let relay = directory.run(&config, url, "relay");
    assert_eq!(ended(&client, saga).await, "parked", "{}", relay.log());
    let steps: String = one(
        &client,
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
    assert_eq!(ended(&client, saga).await, "succeeded");
    let (code, out, _) = run(
        url,
        &["saga", "cancel", &unknown.to_string(), "--by", "ann"],
    )
    .await;
    assert_eq!((code, out.trim()), (0, &*format!("{unknown}: compensated")));
    let (code, out, err) = run(url, &["saga", "skip", "--all"]).await;
    assert!(code == 1 && err.contains("no saga is meant"), "{out} {err}");
}
