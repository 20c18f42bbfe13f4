//! For programs: each command that answers says with `--json` what the API answers for the same.
use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    message::{Reason, Settlement},
    store::{Mandate, Settle},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{bury, deliver};
use crate::{
    outbox::{Outbox, take_in_order, verdict},
    support::{
        binary::{Directory, outbox_relay},
        database,
        rows::one,
    },
};

/// Runs a command with `--json`, and reads each line of its answer. The code it ends with.
async fn lines(url: &str, arguments: &[&str]) -> (Vec<Value>, i32) {
    let ended = outbox_relay(url, &[arguments, &["--json"]].concat()).await;
    let (out, err) = (
        String::from_utf8(ended.stdout).unwrap(),
        String::from_utf8_lossy(&ended.stderr),
    );
    let read = |line| {
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}{err}"))
    };
    (
        out.lines().map(read).collect(),
        ended.status.code().unwrap(),
    )
}

/// Expects one line, and success.
async fn line(url: &str, arguments: &[&str]) -> Value {
    let (mut lines, code) = lines(url, arguments).await;
    assert!(
        lines.len() == 1 && code == 0,
        "{arguments:?}: {code}, {lines:?}"
    );
    lines.remove(0)
}

/// Expects one value of several lines, and success.
async fn value(url: &str, arguments: &[&str]) -> Value {
    let ended = outbox_relay(url, &[arguments, &["--json"]].concat()).await;
    assert!(
        ended.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    serde_json::from_slice(&ended.stdout).unwrap()
}

#[tokio::test]
async fn verbs_on_messages_answer_as_the_api_does() {
    let outbox = Outbox::new().await;
    let url = &outbox.database.url;
    let me = outbox.relay().await;
    for key in ["a", "b", "c", "d"] {
        outbox.insert(&format!("'{key}', null::timestamptz")).await;
    }
    let mut ids: Vec<String> = Vec::new();
    let lease = bury(&outbox, &me, true).await;
    for key in ["a", "b", "c", "d"] {
        let query = "select id from outbox.dead_letters where key = $1";
        ids.push(outbox.one::<Uuid>(query, &[&key]).await.to_string());
    }
    assert_eq!(lease.ids.len(), 4);
    let nobody = Uuid::nil().to_string();

    let (replayed, code) = lines(url, &["replay", &ids[0], &nobody]).await;
    assert_eq!(
        replayed,
        [json!({"id": ids[0], "replayed": [ids[0]], "pending": 0})]
    );
    assert_eq!(code, 1, "one of them was not dead");
    assert_eq!(
        line(url, &["discard", &ids[1]]).await,
        json!({"id": ids[1], "discarded": 1})
    );
    assert_eq!(
        line(url, &["release-key", "t", "c"]).await,
        json!({"released": 1})
    );
    assert_eq!(
        line(url, &["cancel", &ids[0]]).await,
        json!({"cancelled": 1, "in_flight": 0})
    );
    assert_eq!(lines(url, &["cancel", &ids[0]]).await, (vec![], 1));

    let meant = value(url, &["replay", "--topic", "t", "--dry-run"]).await;
    assert_eq!(meant[0]["messages"], 2, "{meant}");
    let job = value(
        url,
        &["replay", "--topic", "t", "--why", "mended", "--by", "ann"],
    )
    .await;
    let said =
        ["verb", "state", "done", "pending", "why", "started_by"].map(|name| job[name].clone());
    assert_eq!(
        json!(said),
        json!(["replay", "done", 2, 0, "mended", "ann"])
    );
    let listed = value(url, &["jobs"]).await;
    assert_eq!(listed[0], job);
    let number = job["job"].to_string();
    assert_eq!(
        line(url, &["jobs", "--abort", &number]).await,
        json!({"was_running": false})
    );
    deliver(&outbox, &me).await;
}

#[tokio::test]
async fn a_pause_and_a_resume_are_kept_with_who_and_why() {
    let outbox = Outbox::new().await;
    let url = &outbox.database.url;
    let change = async || {
        let status = value(url, &["status"]).await;
        let shop = status["endpoints"][0].clone();
        assert_eq!(
            shop["changed_seconds"].is_null(),
            shop["change"].is_null(),
            "{shop}"
        );
        json!(["change", "changed_by", "change_reason", "paused_by"].map(|name| shop[name].clone()))
    };
    assert_eq!(change().await, json!([null, null, null, null]));
    let pause = ["pause", "e", "--why", "moving house", "--by", "ann"];
    assert_eq!(line(url, &pause).await, json!({"changed": true}));
    assert_eq!(
        line(url, &["pause", "e", "--why", "again", "--by", "bob"]).await,
        json!({"changed": false})
    );
    assert_eq!(
        change().await,
        json!(["paused", "ann", "moving house", "ann"])
    );
    let resume = ["resume", "e", "--why", "moved", "--by", "carl"];
    assert_eq!(line(url, &resume).await, json!({"changed": true}));
    assert_eq!(
        line(url, &["resume", "e", "--by", "dora"]).await,
        json!({"changed": false})
    );
    assert_eq!(change().await, json!(["resumed", "carl", "moved", null]));
    let text = outbox_relay(url, &["status"]).await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("ago by carl: moved"), "{text}");
}

#[tokio::test]
async fn migrate_and_check_say_what_a_program_needs_to_know() {
    let database = database().await;
    let url = &database.url;
    let migrated = line(url, &["migrate", "--guard", "blue"]).await;
    assert_eq!(
        (&migrated["from"], &migrated["guard"]),
        (&migrated["to"], &json!("blue"))
    );
    let roles = migrated["missing_roles"].as_array().unwrap();
    assert!(
        roles.is_empty() && migrated["doorbell"].is_boolean(),
        "{migrated}"
    );
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let more = "grace = \"1s\"\n\n[database]\nguard = \"blue\"";
    let config = directory.config(&receiver.url("/"), more);
    let checked = line(url, &["check", "--config", config.to_str().unwrap()]).await;
    assert_eq!(checked["schema_version"], migrated["to"]);
    let shop = &checked["endpoints"][0];
    assert_eq!(
        (&shop["endpoint"], &shop["concurrency"], &shop["attempts"]),
        (&json!("shop"), &json!(4), &json!(100))
    );
    assert_eq!(checked["warnings"][0]["endpoint"], "shop");
    let warnings = checked["warnings"].to_string();
    assert!(
        warnings.contains("a request may take 10s, at shutdown it is given 1s only"),
        "{warnings}"
    );
}

#[tokio::test]
async fn what_is_on_its_way_is_said_beside_what_was_cancelled() {
    let outbox = Outbox::new().await;
    let url = &outbox.database.url;
    let me = outbox.relay().await;
    let id = outbox.insert("'k', null::timestamptz").await;
    let lease = outbox.lease(&me, &take_in_order(1)).await;
    assert_eq!(lines(url, &["cancel", &id.to_string()]).await, (vec![], 1));
    let dead = Settle {
        hold: true,
        ..verdict(lease.id, id, Settlement::Dead(Reason::Rejected))
    };
    outbox.settle(&me, &outbox.of_now(&[dead]).await).await;
    let store = &outbox.store;
    store
        .replay(id, None, false, false, Mandate::default())
        .await
        .unwrap();
    let pending = line(url, &["replay", &id.to_string()]).await;
    assert_eq!(pending, json!({"id": id, "replayed": [], "pending": 1}));
    assert_eq!(
        one::<i64>(&outbox.client, "select count(*) from outbox.messages").await,
        1
    );
}
