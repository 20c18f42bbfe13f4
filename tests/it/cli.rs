//! The command line: what it says, where it says it, and how it exits.
use std::process::Output;

use outbox_relay::lab::receiver::{Receiver, Reply};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Database,
    binary::{Directory, outbox_relay},
    database, empty_database, eventually,
    rows::{SOON, all_settled, assert_nothing_left, count, insert, one},
};

/// Nobody listens there.
const NOWHERE: &str = "postgres://relay:hunter2@127.0.0.1:1/app";

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs it, checks how it exits, and returns standard output and standard error.
async fn exits(code: i32, database: &str, arguments: &[&str]) -> (String, String) {
    let output = outbox_relay(database, arguments).await;
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{out}\n{err}"
    );
    assert!(
        !out.contains("hunter2") && !err.contains("hunter2"),
        "{out}\n{err}"
    );
    (out, err)
}

/// The URL with a password, which this server does not ask for.
fn with_password(database: &Database) -> String {
    database.url.replace("postgres@", "postgres:hunter2@")
}

fn config(directory: &Directory) -> String {
    let path = directory.config("http://127.0.0.1:9/hook", "");
    path.to_str().unwrap().to_owned()
}

// === exit codes ===

#[tokio::test]
async fn success_is_0() {
    let database = empty_database().await;
    let url = with_password(&database);
    let directory = Directory::new();
    let config = config(&directory);
    let (out, _) = exits(0, &url, &["migrate"]).await;
    assert!(out.contains("created the outbox, version"), "{out}");
    let (out, _) = exits(0, &url, &["migrate"]).await;
    assert!(out.contains("nothing to migrate"), "{out}");
    for arguments in [
        &["check", "--config", &config][..],
        &["status"],
        &["status", "--config", &config],
        &["run", "--config", &config, "--until-empty"],
        &["pause", "shop", "--why", "a test"],
        &["resume", "shop"],
        &["--version"],
        &["--help"],
    ] {
        exits(0, &url, arguments).await;
    }
    assert_nothing_left(&database.connect().await).await;
}

#[tokio::test]
async fn a_failure_is_1() {
    let (_, err) = exits(1, NOWHERE, &["demo", "--postgres", "/nowhere"]).await;
    assert!(err.contains("/nowhere"), "{err}");
    let (_, err) = exits(1, &database().await.url, &["resume", "shpo"]).await;
    assert!(err.contains("there is no endpoint \"shpo\""), "{err}");
}

#[tokio::test]
async fn a_wrong_command_line_or_configuration_is_2() {
    let directory = Directory::new();
    let config = config(&directory);
    exits(2, NOWHERE, &[]).await;
    exits(2, NOWHERE, &["deliver"]).await;
    exits(2, NOWHERE, &["run"]).await;
    exits(2, NOWHERE, &["run", "--config", "/nowhere.toml"]).await;
    exits(2, NOWHERE, &["demo", "--messages", "0"]).await;
    for wrong in [
        "mysql://relay:hunter2@db/app",
        "postgres://relay:hunter2@db/app?nonsense=1",
        "postgres://relay:hunter2@db:port/app",
    ] {
        let (_, err) = exits(2, wrong, &["run", "--config", &config]).await;
        assert!(!err.is_empty());
        exits(2, wrong, &["status"]).await;
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_3() {
    let directory = Directory::new();
    let config = config(&directory);
    let all: [&[&str]; 4] = [
        &["run", "--config", &config],
        &["run", "--config", &config, "--until-empty"],
        &["check", "--config", &config],
        &["status"],
    ];
    for arguments in all {
        let (_, err) = exits(3, NOWHERE, arguments).await;
        assert!(err.contains("can't connect to the database"), "{err}");
    }
    let database = empty_database().await;
    for arguments in all {
        let (_, err) = exits(3, &with_password(&database), arguments).await;
        assert!(err.contains("run `outbox-relay migrate`"), "{err}");
    }
}

#[tokio::test]
async fn a_database_of_a_newer_relay_is_refused_and_not_touched() {
    let database = database().await;
    let client = database.connect().await;
    let newer = "insert into outbox.migrations (version, name) values (1000, 'later')";
    client.batch_execute(newer).await.unwrap();
    let directory = Directory::new();
    let config = config(&directory);
    for arguments in [
        &["run", "--config", &config][..],
        &["check", "--config", &config],
        &["migrate"],
    ] {
        let (_, err) = exits(3, &database.url, arguments).await;
        assert!(err.contains("1000") && err.contains("newer"), "{err}");
    }
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn a_copy_of_a_database_is_refused_until_it_is_accepted() {
    let database = database().await;
    let client = database.connect().await;
    let other = "update outbox.meta set database = 'production', database_oid = 1";
    client.batch_execute(other).await.unwrap();
    let directory = Directory::new();
    let config = config(&directory);
    let run = ["run", "--config", &config, "--until-empty"];
    let (_, err) = exits(3, &database.url, &run).await;
    assert!(
        err.contains("copy") && err.contains("--accept-copy"),
        "{err}"
    );
    exits(0, &database.url, &["migrate", "--accept-copy"]).await;
    exits(0, &database.url, &run).await;
}

// === what it says ===

#[tokio::test]
async fn all_that_is_wrong_with_a_configuration_is_said_at_once_with_line_and_key() {
    let directory = Directory::new();
    let text = "[relay]\nlease = \"15\"\npol = \"1s\"\n\n[[endpoints]]\nname = \"shop\"\nurl = \"http://u:hunter2@host/in\"\n";
    let path = directory.write("wrong.toml", text);
    for command in ["run", "check"] {
        let (out, err) = exits(2, NOWHERE, &[command, "-c", path.to_str().unwrap()]).await;
        assert_eq!(out, "");
        for part in [
            "wrong.toml: line 2, relay.lease: ",
            "wrong.toml: line 3, relay.pol: unknown key; did you mean poll?",
            "wrong.toml: line 7, endpoints[0].url: ",
            "routes: ",
        ] {
            assert!(err.contains(part), "{part} is not in:\n{err}");
        }
        assert_eq!(err.lines().count(), 4, "{err}");
    }
}

#[tokio::test]
async fn check_says_what_each_endpoint_will_do() {
    let database = database().await;
    let directory = Directory::new();
    let text = "[relay]\ngrace = \"5s\"\nconcurrency = 64\n\
        [[endpoints]]\nname = \"shop\"\nurl = \"http://127.0.0.1:9/hook?token=hunter2\"\ntimeout = \"10s\"\n\
        retry = { base = \"1s\", factor = 2, cap = \"10s\", max_attempts = 6 }\n\
        [[endpoints]]\nname = \"idle\"\nurl = \"http://127.0.0.1:9/\"\n\
        retry = { base = \"1h\", cap = \"1h\", max_age = \"3h\" }\n\
        batch = { messages = 500, bytes = \"2KiB\" }\n\
        [[routes]]\ntopic = \"slow.*\"\nto = [\"shop\"]\nretry = { delays = [\"10h\"] }\n\
        [[routes]]\ntopic = \"*.paid\"\nto = [\"shop\"]\n\
        [[routes]]\ntopic = \"**\"\nto = [\"shop\"]\n\
        [[routes]]\ntopic = \"order.*\"\nto = [\"shop\"]\n";
    let path = directory.write("relay.toml", text);
    let (out, _) = exits(0, &database.url, &["check", "-c", path.to_str().unwrap()]).await;
    for part in [
        "endpoint shop → POST http://127.0.0.1:9/hook",
        // 1 + 2 + 4 + 8 + 10 s
        "retries: up to 6 attempts over 25s",
        "the delay reaches its cap of 10s after attempt 5",
        "warning: a request may take 10s, at shutdown it is given 5s only",
        "batches of up to 500 messages and 2048 bytes of payload in one request",
        "warning: no batch has more than 200 messages, for a claim brings no more (relay.batch)",
        "max_age = 3h ends it before max_attempts = 20 is reached",
        "warning: no route leads to it",
        "warning: relay.concurrency = 64 leaves nothing beside endpoint idle (concurrency = 64)",
        "topic ** → shop\n",
        // Five times ten hours, and a tenth of each.
        "topic slow.* → shop\n  retries to shop: up to 6 attempts over 2d7h (on average 2d4h)",
        "  the delay reaches its cap of 11h after attempt 1\n  warning: attempts may go on for 2d7h, the receiver forgets keys after 1d",
        "warning: the route order.* → shop is never asked",
        "warning: the routes slow.* → shop and *.paid → shop share topics such as slow.paid: the first of them decides, which is slow.*",
        "database: reachable, schema version",
    ] {
        assert!(out.contains(part), "{part} is not in:\n{out}");
    }
    assert_eq!(out.matches("share topics").count(), 1, "{out}");
}

#[tokio::test]
async fn check_warns_of_a_cap_that_is_never_reached() {
    let database = database().await;
    let directory = Directory::new();
    let endpoint = |name: &str, retry: &str| {
        format!(
            "[[endpoints]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9/\"\nretry = {{ {retry} }}\n"
        )
    };
    let never = "warning: the delay never reaches its cap";
    let route = "[[routes]]\ntopic = \"**\"\nto = [\"shop\"]\n";
    for (retry, want) in [
        (
            "base = \"1s\", cap = \"10m\", max_attempts = 4",
            "warning: the delay never reaches its cap of 10m: after attempt 3 of 4 it is 4s at most",
        ),
        // The age ends it before.
        (
            "base = \"1s\", cap = \"30m\", max_age = \"10s\"",
            "warning: the delay never reaches its cap of 30m: after attempt 4 of 5 it is 8s at most",
        ),
        (
            "delays = [\"10s\", \"20s\", \"1h\"], max_attempts = 3",
            "warning: the delay never reaches its cap of 1h6m: after attempt 2 of 3 it is 22s at most",
        ),
        // The cap that nobody wrote.
        (
            "max_attempts = 3",
            "  the delay never reaches its cap of 1h: after attempt 2 of 3 it is 2s at most",
        ),
        (
            "base = \"1s\", cap = \"4s\", max_attempts = 4",
            "  the delay reaches its cap of 4s after attempt 3",
        ),
    ] {
        let path = directory.write("relay.toml", &(endpoint("shop", retry) + route));
        let (out, _) = exits(0, &database.url, &["check", "-c", path.to_str().unwrap()]).await;
        assert!(out.contains(want), "{want} is not in:\n{out}");
        assert_eq!(out.contains(never), want.contains("warning"), "{out}");
    }
    let once = endpoint("shop", "max_attempts = 1") + route;
    let path = directory.write("relay.toml", &once);
    let (out, _) = exits(0, &database.url, &["check", "-c", path.to_str().unwrap()]).await;
    assert!(!out.contains("its cap"), "without a delay: {out}");
}

#[tokio::test]
async fn the_printed_migration_makes_an_outbox() {
    let database = empty_database().await;
    let client = database.connect().await;
    let (script, err) = exits(0, NOWHERE, &["migrate", "--print"]).await;
    assert_eq!(err, "");
    client.batch_execute(&script).await.unwrap();
    let (out, _) = exits(0, &database.url, &["migrate"]).await;
    assert!(out.contains("nothing to migrate"), "{out}");
    let directory = Directory::new();
    exits(0, &database.url, &["check", "-c", &config(&directory)]).await;
    assert!(count(&client, "attempts").await == 0);
}

#[tokio::test]
async fn status_shows_relays_backlog_pauses_and_dead_letters() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|request| match &request.body[..] {
        b"\"dead\"" => Reply::status(422),
        _ => Reply::never(),
    })
    .unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "grace = \"0s\"");
    let dead = "insert into outbox.messages (topic, payload) values ('t', '\"dead\"')";
    client.batch_execute(dead).await.unwrap();
    let mut relay = directory.run(&config, &with_password(&database), "relay-7");
    eventually("it is dead", SOON, async || {
        count(&client, "dead_letters").await == 1
    })
    .await;
    insert(&client, "order.paid", 20).await;
    receiver.wait_for(5, SOON).await.unwrap();
    exits(
        0,
        &database.url,
        &["pause", "shop", "--why", "moving house"],
    )
    .await;

    let (out, err) = exits(0, &with_password(&database), &["status", "--json"]).await;
    assert_eq!(err, "");
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["relays"][0]["name"], "relay-7");
    assert_eq!(status["relays"][0]["leased"], 16);
    assert_eq!(status["endpoints"][0]["endpoint"], "shop");
    assert_eq!(status["endpoints"][0]["pause_reason"], "moving house");
    assert_eq!(status["lanes"][0]["topic"], "order.paid");
    assert_eq!(status["lanes"][0]["pending"], 20);
    assert_eq!(status["dead_letters"][0]["reason"], "rejected");
    assert_eq!(status["dead_letters"][0]["count"], 1);

    let (out, _) = exits(0, &with_password(&database), &["status"]).await;
    for part in ["relay-7", "moving house", "order.paid", "20", "rejected"] {
        assert!(out.contains(part), "{part} is not in:\n{out}");
    }
    relay.signal(Signal::INT);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
}

#[tokio::test]
async fn a_job_delivers_what_is_due_says_so_and_exits() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    insert(&client, "t", 50).await;
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    let arguments = ["run", "-c", config.to_str().unwrap(), "--until-empty"];
    let (out, _) = exits(0, &with_password(&database), &arguments).await;
    assert_eq!(out, "delivered=50 retried=0 dead=0\n");
    assert_nothing_left(&client).await;
}

#[tokio::test]
async fn logs_are_one_json_object_a_line_and_never_hold_a_password_or_a_payload() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(503),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let url = receiver.url("/hook?token=hunter2");
    let config = directory.config(&url, "");
    let mut relay = directory.run(&config, &with_password(&database), "relay");
    let row = "insert into outbox.messages (topic, payload, headers) values ('t', '\"hunter2\"', '{\"authorization\": \"hunter2\"}')";
    client.batch_execute(row).await.unwrap();
    all_settled(&client, SOON).await;
    // A connection that breaks is told of, too.
    let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                     where datname = current_database() and application_name = 'outbox-relay'";
    one::<i64>(&client, terminate).await;
    insert(&client, "t", 10).await;
    all_settled(&client, SOON).await;
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0));

    let log = relay.log();
    assert!(!log.contains("hunter2"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let says = |text: &str| {
        lines
            .iter()
            .find(|line| line["message"].as_str() == Some(text))
    };
    assert!(
        says("registered").is_some() && says("stopped").is_some(),
        "{log}"
    );
    let failed = says("delivery failed").unwrap();
    assert_eq!(
        (&failed["level"], &failed["endpoint"]),
        (&"WARN".into(), &"shop".into())
    );
    assert!(failed["message.id"].is_string() && failed["attempt"] == 1);
}

#[tokio::test]
async fn the_demo_ends_with_its_verdict_on_one_line() {
    let (out, err) = exits(0, NOWHERE, &["demo", "--messages", "200"]).await;
    let verdicts: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with("demo: "))
        .collect();
    assert_eq!(verdicts.len(), 1, "{out}\n{err}");
    assert_eq!(out.lines().last(), Some(verdicts[0]));
    let numbers: Vec<(&str, u64)> = verdicts[0]["demo: ".len()..]
        .split(' ')
        .map(|pair| {
            let (name, number) = pair.split_once('=').unwrap();
            (name, number.parse().unwrap())
        })
        .collect();
    let names: Vec<&str> = numbers.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "inserted",
            "delivered",
            "duplicates",
            "dead",
            "lost",
            "rolled_back_sent"
        ]
    );
    let [inserted, delivered, _, dead, lost, rolled_back] = <[u64; 6]>::try_from(
        numbers
            .iter()
            .map(|(_, number)| *number)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    assert_eq!(
        (inserted, delivered + dead, lost, rolled_back),
        (200, 200, 0, 0)
    );
}
