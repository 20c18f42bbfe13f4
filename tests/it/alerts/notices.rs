//! Notices on their way: to a webhook, and as messages.
use std::time::Duration;

use outbox_relay::{
    lab::receiver::{Receiver, Reply, Request},
    store::{Mandate, Watch},
};
use rustix::process::Signal;
use serde_json::Value;

use super::{eager, look, run};
use crate::support::{
    Database,
    binary::{Directory, Process, outbox_relay},
    database, eventually,
    rows::{SOON, count, insert, mandate, one},
};

/// `[alerts]` with a webhook, as a configuration has it.
fn alerts(url: &str, more: &str) -> String {
    format!(
        "[alerts]\nevery = \"1s\"\npaused = \"1s\"\n{more}\n[alerts.webhook]\nurl = \"{url}\"\ntimeout = \"1s\"\n"
    )
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// An endpoint of nobody, paused for a while.
async fn pause(database: &Database) {
    let store = database.store();
    store
        .add_endpoints(&[("partner", Duration::from_secs(10))])
        .await
        .unwrap();
    store
        .pause("partner", mandate("their release", "ann"))
        .await
        .unwrap();
}

async fn logged(relay: &Process, what: &str) {
    eventually(what, SOON, async || relay.log().contains(what)).await;
}

#[tokio::test]
async fn two_replicas_send_one_notice_and_one_when_it_is_over() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let hook = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), &alerts(&hook.url("/hook"), ""));
    let a = directory.run(&config, &database.url, "a");
    let b = directory.run(&config, &database.url, "b");
    for relay in [&a, &b] {
        logged(relay, "\"registered\"").await;
    }
    pause(&database).await;
    hook.wait_for(1, SOON).await.unwrap();
    // Each of them has looked again: half of `every` lies between two looks.
    let looks = async || -> String {
        one(
            &client,
            "select coalesce(watched_at::text, '') from outbox.watching",
        )
        .await
    };
    for _ in 0..4 {
        let before = looks().await;
        eventually("somebody looks", SOON, async || looks().await != before).await;
    }
    assert_eq!(hook.count(), 1);
    database
        .store()
        .resume("partner", Mandate::default())
        .await
        .unwrap();
    hook.wait_for(2, SOON).await.unwrap();
    let sent = hook.requests();
    let said: Vec<Value> = sent.iter().map(body).collect();
    let expected = [("firing", "paused"), ("recovered", "paused")];
    for (said, (state, kind)) in said.iter().zip(expected) {
        assert_eq!(
            (&said["state"], &said["kind"]),
            (&state.into(), &kind.into())
        );
        assert_eq!(said["subject"], "partner");
        assert_eq!(said["command"], "outbox-relay resume partner");
        assert_eq!(said["database"], database.name);
        assert_eq!(said["details"]["paused_by"], "ann");
        let members: Vec<&String> = said.as_object().unwrap().keys().collect();
        let documented = [
            "at", "command", "database", "details", "id", "kind", "since", "state", "subject",
            "summary",
        ];
        let mut sorted = members.clone();
        sorted.sort();
        assert_eq!(sorted, documented);
    }
    assert_eq!(said[0]["since"], said[1]["since"]);
    assert_ne!(said[0]["id"], said[1]["id"]);
    assert_eq!(sent[0].header("content-type"), Some("application/json"));
    let key = format!("\"{}\"", said[0]["id"].as_str().unwrap());
    assert_eq!(sent[0].header("idempotency-key"), Some(&*key));
    assert_eq!(directory.lines_with("\"something is wrong\"").len(), 1);
    assert_eq!(directory.lines_with("\"an alert has recovered\"").len(), 1);
    eventually("no notice is left", SOON, async || {
        count(&client, "notices").await == 0
    })
    .await;
}

#[tokio::test]
async fn a_notice_outlives_the_relay_that_wrote_it_down() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    // The first one never hears an answer.
    let hook = Receiver::start(|request| match request.number {
        1 => Reply::never(),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), &alerts(&hook.url("/hook"), ""));
    pause(&database).await;
    let mut first = directory.run(&config, &database.url, "first");
    hook.wait_for(1, SOON).await.unwrap();
    first.signal(Signal::KILL);
    first.end(SOON).await;
    assert_eq!(count(&client, "notices").await, 1);
    let mut second = directory.run(&config, &database.url, "second");
    hook.wait_for(2, SOON).await.unwrap();
    let requests = hook.requests();
    let key = |request: &Request| request.header("idempotency-key").unwrap().to_owned();
    assert_eq!(key(&requests[0]), key(&requests[1]), "the same notice");
    assert_eq!(requests[1].header("outbox-attempt"), Some("2"));

    // Written down by somebody who died before he could send anything.
    second.signal(Signal::KILL);
    second.end(SOON).await;
    run(
        &client,
        "delete from outbox.notices; delete from outbox.alerts; update outbox.watching set watched_at = null",
    )
    .await;
    let watch = Watch {
        paused: Some(Duration::from_secs(1)),
        ..eager()
    };
    assert_eq!(look(&database.store(), &watch).await.len(), 1);
    assert_eq!(hook.count(), 2);
    let _third = directory.run(&config, &database.url, "third");
    hook.wait_for(3, SOON).await.unwrap();
    assert_ne!(key(&hook.requests()[2]), key(&requests[0]));
}

#[tokio::test]
async fn a_webhook_that_fails_is_told_later_and_its_url_stays_a_secret() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let hook = Receiver::start(|request| match request.number {
        1 => Reply::status(302).header("location", "http://127.0.0.1:1/services/T0/s3cr3t-path"),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let file = directory.write("slack", &hook.url("/services/T0/s3cr3t-path\n"));
    let more = format!(
        "[alerts]\nevery = \"1s\"\npaused = \"1s\"\n[alerts.webhook]\nurl_file = {file:?}\nformat = \"slack\"\nheaders = {{ X-Token = \"s3cr3t-header\" }}\n"
    );
    let config = directory.config(&receiver.url("/"), &more);
    pause(&database).await;
    let _relay = directory.run(&config, &database.url, "relay");
    insert(&client, "t", 3).await;
    hook.wait_for(2, SOON).await.unwrap();
    receiver.wait_for(3, SOON).await.unwrap();
    let requests = hook.requests();
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(requests[1].header("x-token"), Some("s3cr3t-header"));
    let said = body(&requests[1]);
    let text = said["text"].as_str().unwrap();
    assert_eq!(said.as_object().unwrap().len(), 1);
    let begins = format!(
        ":rotating_light: *outbox {} firing: paused*\nendpoint partner: paused for ",
        database.name
    );
    assert!(text.starts_with(&begins), "{text}");
    assert!(text.ends_with("\n`outbox-relay resume partner`"), "{text}");
    let log = directory.lines_with("not accepted, trying again");
    assert_eq!(log.len(), 1, "{log:?}");
    let config = config.to_str().unwrap();
    let output = outbox_relay(&database.url, &["check", "--config", config]).await;
    let checked = String::from_utf8(output.stdout).unwrap();
    assert!(
        checked.contains(
            "alerts: looked for every 1s, told to the log, a webhook at http://127.0.0.1:"
        ),
        "{checked}"
    );
    let logs = directory.lines_with("{").join("\n");
    for (what, said) in [("log", &logs), ("check", &checked)] {
        let relay_lines = said.lines().filter(|line| !line.starts_with("[alerts"));
        let leaks: Vec<&str> = relay_lines
            .filter(|line| line.contains("s3cr3t") && !line.starts_with("headers ="))
            .collect();
        assert!(leaks.is_empty(), "{what}: {leaks:?}");
    }
}

#[tokio::test]
async fn alerts_are_messages_if_wanted_and_shown_by_status() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let more = "[alerts]\nevery = \"1s\"\npaused = \"1s\"\ntopic = \"outbox.alert\"\n";
    let config = directory.config(&receiver.url("/"), more);
    pause(&database).await;
    let _relay = directory.run(&config, &database.url, "relay");
    receiver.wait_for(1, SOON).await.unwrap();
    let request = receiver.requests().remove(0);
    assert_eq!(request.header("outbox-topic"), Some("outbox.alert"));
    assert_eq!(request.header("outbox-type"), Some("outbox.alert.firing"));
    assert_eq!(request.header("outbox-key"), Some("paused%20partner"));
    let said = body(&request);
    assert_eq!(said["subject"], "partner");
    assert_eq!(
        request.header("outbox-message-id"),
        said["id"].as_str(),
        "one identity"
    );
    let output = outbox_relay(&database.url, &["status"]).await;
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("WHAT IS WRONG") && shown.contains("`outbox-relay resume partner`"),
        "{shown}"
    );
    let output = outbox_relay(&database.url, &["status", "--json"]).await;
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["alerts"][0]["kind"], "paused");
    assert_eq!(status["alerts"][0]["details"]["reason"], "their release");
    database
        .store()
        .resume("partner", Mandate::default())
        .await
        .unwrap();
    receiver.wait_for(2, SOON).await.unwrap();
    assert_eq!(body(&receiver.requests()[1])["state"], "recovered");
}

#[tokio::test]
async fn without_anything_wrong_nobody_is_told_and_a_reload_turns_it_on() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let hook = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    let relay = directory.run(&config, &database.url, "relay");
    insert(&client, "t", 100).await;
    receiver.wait_for(100, SOON).await.unwrap();
    let never: bool = one(&client, "select watched_at is null from outbox.watching").await;
    assert!(never, "without [alerts] nobody looks");
    directory.config(&receiver.url("/"), &alerts(&hook.url("/hook"), ""));
    logged(&relay, "\"configuration reloaded\"").await;
    let mut last = String::new();
    for _ in 0..3 {
        eventually("somebody looks", SOON, async || {
            let query = "select coalesce(watched_at::text, '') from outbox.watching";
            let now: String = one(&client, query).await;
            now != std::mem::replace(&mut last, now.clone())
        })
        .await;
    }
    let told = (
        count(&client, "alerts").await,
        count(&client, "notices").await,
    );
    assert_eq!((told, hook.count()), ((0, 0), 0));
}
