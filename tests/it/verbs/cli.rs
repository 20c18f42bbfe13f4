//! The same from the command line: what it says, and how it exits.
use std::process::Output;

use outbox_relay::{
    lab::receiver::Reply,
    store::{Filter, Mandate, Verb},
};
use rustix::process::Signal;
use serde_json::Value;
use uuid::Uuid;

use crate::support::{
    binary::{Directory, outbox_relay},
    eventually,
    rows::{SOON, all_settled, count, insert_one, one},
    scene::Scene,
};

/// Runs it and returns how it exits, and what it says on either side.
async fn run(url: &str, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = outbox_relay(url, arguments).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Expects success, and returns the answer.
async fn says(url: &str, arguments: &[&str]) -> String {
    let (code, out, err) = run(url, arguments).await;
    assert_eq!(code, 0, "{arguments:?}\n{out}\n{err}");
    out
}

/// Expects this code and a part of what is said on standard error.
async fn fails(url: &str, arguments: &[&str], code: i32, part: &str) {
    let (is, out, err) = run(url, arguments).await;
    assert!(
        is == code && err.contains(part),
        "{arguments:?}: {is}\n{out}\n{err}"
    );
}

/// A receiver that refuses what is addressed to `/hook` for as long as it is asked for less than so many times.
async fn refused(rows: u64) -> Scene {
    let scene = Scene::new(move |request| match request.number <= rows {
        true => Reply::status(422).body("no such warehouse: Utrecht"),
        false => Reply::status(200),
    })
    .await;
    for n in 0..rows {
        let payload = format!("'{{\"n\": {n}.50}}', 'order-{n}'");
        insert_one(&scene.client, "payload, key", &payload).await;
    }
    let relay = scene.start();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(
        count(&scene.client, "dead_letters").await,
        i64::try_from(rows).unwrap()
    );
    scene
}

#[tokio::test]
async fn a_failure_is_found_looked_at_and_replayed_with_its_like() {
    let scene = refused(30).await;
    let url = &scene.database.url;
    let found = says(url, &["history", "--error", "UTRECHT", "--limit", "3"]).await;
    let lines: Vec<&str> = found.lines().collect();
    assert!(
        lines[1].contains("rejected") && lines[1].contains("422"),
        "{found}"
    );
    let place = found
        .split("--after '")
        .nth(1)
        .unwrap()
        .trim_end()
        .trim_end_matches('\'');
    let next = says(
        url,
        &[
            "history", "--error", "utrecht", "--limit", "3", "--after", place,
        ],
    )
    .await;
    assert!(
        lines[1..4].iter().all(|line| !next.contains(line)),
        "{found}\n{next}"
    );
    assert!(
        says(url, &["history", "--error", "Antwerp"])
            .await
            .contains("nothing")
    );

    let list = says(url, &["list", "dead", "--key", "order-7", "--json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(
        (list.as_array().unwrap().len(), &list[0]["reason"]),
        (1, &Value::from("rejected"))
    );
    let shown = says(url, &["show", id]).await;
    for part in [
        "it died 00:00:",
        "key        order-7",
        "payload    {\"n\": 7.50}",
        "rejected",
        "no such warehouse: Utrecht",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(says(url, &["why", id]).await.starts_with("shop: it died"));

    let dry = says(url, &["replay", "--error", "utrecht", "--dry-run"]).await;
    assert!(
        dry.contains("30 shop") && dry.contains("30 in all; nothing was done"),
        "{dry}"
    );
    assert_eq!(count(&scene.client, "dead_letters").await, 30);
    let done = says(
        url,
        &[
            "replay",
            "--error",
            "utrecht",
            "--rate",
            "1000",
            "--why",
            "warehouse added",
            "--by",
            "ann",
        ],
    )
    .await;
    assert!(
        done.contains("job 1: 30 messages") && done.contains("job 1: done, 30 sent again"),
        "{done}"
    );
    let jobs = says(url, &["jobs"]).await;
    assert!(
        jobs.contains("1 done: replay dead, error = \"utrecht\", 30 done, by ann at "),
        "{jobs}"
    );
    assert!(jobs.contains(": warehouse added"), "{jobs}");
    let relay = scene.start();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
    assert_eq!(scene.receiver.count(), 60);
    let shown = says(url, &["show", id]).await;
    assert!(
        shown.contains("by ann  warehouse added") && shown.contains("it was delivered"),
        "{shown}"
    );
}

#[tokio::test]
async fn single_messages_are_replayed_discarded_and_cancelled() {
    let scene = refused(3).await;
    let url = &scene.database.url;
    let ids: Vec<Uuid> = scene
        .client
        .query("select id from outbox.dead_letters order by seq", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let [a, b, c] = [0, 1, 2].map(|n: usize| ids[n].to_string());
    assert_eq!(
        says(url, &["replay", &a, "--why", "again"]).await,
        format!("{a}: is sent again\n")
    );
    assert_eq!(
        says(url, &["replay", &a]).await,
        format!(
            "{a}: is pending already
"
        )
    );
    let unknown = Uuid::nil().to_string();
    let part = format!("what was delivered and is kept is sent again): {unknown}");
    fails(url, &["replay", &unknown], 1, &part).await;
    let part = format!("not delivered and kept: {unknown}");
    fails(url, &["replay", &unknown, "--delivered"], 1, &part).await;
    assert!(
        says(url, &["replay", &b, "--new-key"])
            .await
            .starts_with(&format!("{b}: is sent again as "))
    );
    assert_eq!(
        says(url, &["discard", &c]).await,
        format!("{c}: discarded\n")
    );
    fails(url, &["discard", &c], 1, &format!("not dead: {c}")).await;
    assert_eq!(
        says(url, &["cancel", &a, "--why", "no"]).await,
        format!("{a}: cancelled (1)\n")
    );
    assert!(
        says(url, &["why", &a])
            .await
            .contains("it was cancelled 00:00:0")
    );
    fails(
        url,
        &["why", &Uuid::nil().to_string()],
        1,
        "no message 00000000-0000-0000-0000-000000000000 is known",
    )
    .await;
    fails(url, &["show", &Uuid::nil().to_string()], 1, "is known").await;
    fails(
        url,
        &["release-key", "t", "k"],
        1,
        "no dead message holds key \"k\" of topic \"t\"",
    )
    .await;
    assert!(says(url, &["list"]).await.contains(" t "));
}

#[tokio::test]
async fn what_is_not_clear_is_not_done() {
    let scene = refused(2).await;
    let url = &scene.database.url;
    fails(
        url,
        &["replay"],
        2,
        "say which: ids, a filter such as --endpoint or --error, or --all",
    )
    .await;
    fails(url, &["discard"], 2, "say which").await;
    fails(
        url,
        &["replay", "--endpoint", "nobody"],
        1,
        "no message is meant by that: nothing was done",
    )
    .await;
    fails(
        url,
        &["replay", "--delivered", "--error", "x"],
        2,
        "cannot be used with",
    )
    .await;
    fails(
        url,
        &["replay", &Uuid::nil().to_string(), "--all"],
        2,
        "cannot be used with",
    )
    .await;
    fails(
        url,
        &["replay", "--all", "--rate", "0"],
        2,
        "from 0.001 to 1000000",
    )
    .await;
    fails(
        url,
        &["replay", "--all", "--since", "yesterdayish"],
        2,
        "invalid input syntax for type timestamp",
    )
    .await;
    fails(url, &["list", "dead", "--since=-5"], 2, "a time such as").await;
    fails(url, &["list", "dead", "--after", "7"], 2, "a JSON array").await;
    fails(
        url,
        &["list", "lost"],
        2,
        "possible values: pending, dead, delivered",
    )
    .await;
    fails(url, &["list", "--limit", "0"], 2, "0 is not in 1..=10000").await;
    fails(url, &["replay", "--resume", "7"], 1, "there is no job 7").await;
    fails(url, &["jobs", "--abort", "7"], 1, "there is no job 7").await;
    assert_eq!(count(&scene.client, "dead_letters").await, 2);
    assert_eq!(count(&scene.client, "jobs").await, 0);
    let (dead, delivered) = (["discard", "--all"], ["replay", "--delivered", "--all"]);
    assert!(says(url, &dead).await.contains("2 discarded"));
    fails(url, &delivered, 1, "no message is meant").await;
}

#[tokio::test]
async fn a_job_that_is_interrupted_says_how_to_go_on() {
    let scene = refused(20).await;
    let directory = Directory::new();
    let arguments = ["replay", "--all", "--rate", "5"];
    let mut slow = directory.command(&scene.database.url, &arguments, "replay");
    eventually("it is at work", SOON, async || {
        one::<i64>(
            &scene.client,
            "select coalesce(max(done), 0) from outbox.jobs",
        )
        .await
            >= 2
    })
    .await;
    slow.signal(Signal::TERM);
    assert_eq!(slow.end(SOON).await.code(), Some(1));
    let log = slow.log();
    assert!(log.contains("`outbox-relay replay --resume 1` goes on with it, `outbox-relay jobs --abort 1` ends it"), "{log}");
    scene
        .client
        .batch_execute("update outbox.jobs set rate = null")
        .await
        .unwrap();
    let url = &scene.database.url;
    assert!(
        says(url, &["replay", "--resume", "1"])
            .await
            .contains("job 1: done, 20 sent again")
    );
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
}

#[tokio::test]
async fn a_job_is_gone_on_with_by_its_own_verb() {
    let scene = refused(2).await;
    let url = &scene.database.url;
    let store = scene.database.store();
    let all = Filter::default();
    let job = store.start_job(Verb::Discard, &all, Mandate::default(), false);
    assert_eq!(job.await.unwrap(), 1);
    let part = "job 1 is a discard: `outbox-relay discard --resume 1` goes on with it";
    fails(url, &["replay", "--resume", "1"], 2, part).await;
    let also = ["discard", "--resume", "1", "--why", "x"];
    fails(url, &also, 2, "cannot be used with").await;
    says(url, &["jobs", "--abort", "1"]).await;
    fails(url, &["discard", "--resume", "1"], 1, "job 1: aborted, 0").await;
    assert_eq!(count(&scene.client, "dead_letters").await, 2);
}

#[tokio::test]
async fn nothing_that_a_receiver_says_moves_the_cursor() {
    let scene = Scene::new(|_| Reply::status(422).body("bad \u{1b}[31mred\u{9b}2J\r")).await;
    let key = "'{\"a\": \"\u{9b}\"}', E'k\u{1b}]0;t'";
    let id = insert_one(&scene.client, "payload, key", key).await;
    let relay = scene.start();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    let (url, id) = (&scene.database.url, &id.to_string());
    let tame = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n');
    for arguments in [
        &["why", id][..],
        &["show", id],
        &["list", "dead"],
        &["history"],
        &["why", id, "--json"],
        &["show", id, "--json"],
        &["history", "--json"],
    ] {
        let said = says(url, arguments).await;
        assert!(
            tame(&said) && said.contains("bad "),
            "{arguments:?}: {said:?}"
        );
    }
    let life: Value = serde_json::from_str(&says(url, &["show", id, "--json"]).await).unwrap();
    assert_eq!(life["dead"][0]["payload"]["a"], "\u{9b}");
}

#[tokio::test]
async fn a_filter_that_can_mean_nothing_is_refused() {
    let scene = refused(1).await;
    let url = &scene.database.url;
    let pending = "what is pending has no reason and no status";
    let delivered = "what was delivered has no reason, status or error";
    fails(url, &["list", "--status", "503"], 2, pending).await;
    fails(url, &["list", "--reason", "attempts"], 2, pending).await;
    fails(url, &["list", "delivered", "--error", "x"], 2, delivered).await;
    for place in ["[]", "[\"x\",1,2,3,4]"] {
        let part = "this is not the place of a message that is pending";
        fails(url, &["list", "--after", place], 2, part).await;
    }
    let recent = says(url, &["list", "dead", "--since", "1h"]).await;
    assert!(recent.contains("rejected"), "{recent}");
    let old = says(url, &["list", "dead", "--until", "1h"]).await;
    assert!(old.contains("nothing"), "{old}");
}
