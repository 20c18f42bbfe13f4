//! What a relay counts, as Prometheus scrapes it.
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::Write as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    maintenance::{self, Trail},
    metrics::{Format, Metrics},
};
use rand::{SeedableRng, rngs::StdRng};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    asked::Asked,
    client, database, eventually, pooled,
    rows::{SOON, all_settled, insert, mandate, one},
};

/// What is scraped, as it came.
async fn scrape(relay: &Asked, accept: &str) -> (String, String) {
    let url = format!("http://{}/metrics", relay.address);
    let answer = client()
        .get(url)
        .header(ACCEPT, accept)
        .send()
        .await
        .unwrap();
    let kind = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    (kind, answer.text().await.unwrap())
}

/// The value of each sample.
async fn samples(relay: &Asked) -> BTreeMap<String, f64> {
    let (_, text) = scrape(relay, "text/plain").await;
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(sample).collect()
}

/// Waits for this value of a sample.
async fn becomes(relay: &Asked, name: &str, want: f64) {
    let what = format!("{name} is {want}");
    eventually(&what, SOON, async || {
        samples(relay).await.get(name) == Some(&want)
    })
    .await;
}

/// Runs `promtool` with this on its standard input; returns whether it is content, and what it said.
fn promtool(arguments: &[&str], text: &str) -> (bool, String) {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where it is"
    )]
    let promtool = env::var("OUTBOX_TEST_PROMTOOL");
    let promtool = promtool
        .expect("OUTBOX_TEST_PROMTOOL is not set: run the tests with scripts/test, which sets it");
    let mut tool = Command::new(promtool)
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said)
}

/// What `promtool check metrics` finds wrong with a text.
fn faults(text: &str) -> String {
    let (content, said) = promtool(&["check", "metrics"], text);
    assert_eq!(content, said.is_empty(), "{said}");
    said
}

#[test]
fn alerts_come_when_they_must_and_not_when_they_must_not() {
    let (content, said) = promtool(&["test", "rules", "alerts.yaml"], "");
    assert!(content, "{said}");
    let rules = include_str!("../../helm/outbox-relay/files/alerts.yaml");
    let tests = include_str!("alerts.yaml");
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let told = format!("alertname: {alert}\n        exp_alerts:");
        let quiet = format!("alertname: {alert}}}");
        assert!(
            tests.contains(&told) && tests.contains(&quiet),
            "{alert} is not tested both ways"
        );
    }
}

const DASHBOARD: &str = include_str!("../../helm/outbox-relay/files/dashboard.json");

/// Every expression of the dashboard stands in a rule, with a length of time for Grafana's interval, and is one of `PromQL`.
#[test]
fn the_dashboard_asks_in_promql() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let asked = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap());
    let rules: Vec<Value> = asked
        .enumerate()
        .map(|(n, expr)| {
            let expr = expr.replace("$__rate_interval", "5m");
            assert!(expr.contains("=~\"$job\""), "it is for some jobs: {expr}");
            json!({ "record": format!("panel:{n}"), "expr": expr })
        })
        .collect();
    assert!(rules.len() > 20);
    let found = format!("{} rules found", rules.len());
    let rules = json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string();
    let (content, said) = promtool(&["check", "rules", "/dev/stdin"], &rules);
    assert!(content && said.contains(&found), "{said}");
    // Panels have places of their own, and none covers another.
    let mut places = BTreeSet::new();
    for panel in panels {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && places.insert((x, y)), "{}", panel["title"]);
            }
        }
    }
}

/// Rules and dashboard ask for nothing that is not there.
fn asked_for() -> BTreeSet<&'static str> {
    let rules = include_str!("../../helm/outbox-relay/files/alerts.yaml");
    let word = |c: char| !(c.is_ascii_lowercase() || c == '_');
    let words = [rules, DASHBOARD]
        .into_iter()
        .flat_map(|text| text.split(word));
    words
        .filter(|word| word.starts_with("outbox_") && *word != "outbox_database_")
        .collect()
}

#[tokio::test]
async fn what_it_did_and_how_the_database_stands_is_scraped() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(503),
        2 => Reply::status(422),
        _ => Reply::status(200),
    })
    .unwrap();
    let more = "sample_every = \"1s\"";
    insert(&client, "t", 10).await;
    let relay = Asked::start(&receiver, &database.url, more).await;
    all_settled(&client, SOON).await;
    let done = "outbox_settlements_total{endpoint=\"shop\",settlement=\"delivered\"}";
    becomes(&relay, done, 9.0).await;
    let seen = samples(&relay).await;
    for (name, want) in [
        (
            "outbox_attempts_total{endpoint=\"shop\",outcome=\"success\"}",
            9.0,
        ),
        (
            "outbox_attempts_total{endpoint=\"shop\",outcome=\"unavailable\"}",
            1.0,
        ),
        (
            "outbox_attempts_total{endpoint=\"shop\",outcome=\"rejected\"}",
            1.0,
        ),
        (
            "outbox_settlements_total{endpoint=\"shop\",settlement=\"dead\"}",
            1.0,
        ),
        (
            "outbox_settlements_total{endpoint=\"shop\",settlement=\"retry\"}",
            1.0,
        ),
        ("outbox_delivery_lag_seconds_count{endpoint=\"shop\"}", 9.0),
        (
            "outbox_request_duration_seconds_count{endpoint=\"shop\"}",
            11.0,
        ),
    ] {
        assert_eq!(seen.get(name), Some(&want), "{name}: {seen:#?}");
    }
    assert!(
        seen["outbox_claim_messages_sum"] >= 10.0 && seen["outbox_settle_messages_sum"] >= 11.0,
        "{seen:#?}"
    );
    let on_the_way = "outbox_requests_in_flight{endpoint=\"shop\"}";
    becomes(&relay, on_the_way, 0.0).await;
    becomes(&relay, "outbox_held_messages{endpoint=\"shop\"}", 0.0).await;
    becomes(
        &relay,
        "outbox_database_dead_letters{endpoint=\"shop\",reason=\"rejected\"}",
        1.0,
    )
    .await;
    becomes(&relay, "outbox_database_relays", 1.0).await;
    let connections = samples(&relay).await["outbox_database_connections"];
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'outbox-relay%'";
    let sessions: i64 = one(&client, sessions).await;
    // A pooler has sessions of its own, fewer than those that come to it.
    let direct = pooled(&database.url) == database.url;
    assert!(
        connections >= 3.0 && (!direct || connections <= sessions as f64),
        "{connections} of {sessions}"
    );

    let store = database.store();
    store.pause("shop", mandate("a test", "me")).await.unwrap();
    becomes(
        &relay,
        "outbox_database_endpoint_paused{endpoint=\"shop\"}",
        1.0,
    )
    .await;
    insert(&client, "t", 7).await;
    becomes(
        &relay,
        "outbox_database_backlog_messages{endpoint=\"shop\"}",
        7.0,
    )
    .await;
    let old = database.connect().await;
    old.batch_execute("begin isolation level repeatable read; select 1")
        .await
        .unwrap();
    eventually("they grow old, and so does the horizon", SOON, async || {
        let seen = samples(&relay).await;
        seen["outbox_database_oldest_due_seconds{endpoint=\"shop\"}"] > 1.0
            && seen["outbox_database_horizon_age_seconds"] > 1.0
    })
    .await;
    drop(old);

    let (kind, text) = scrape(&relay, "text/plain").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(faults(&text), "", "{text}");
    assert!(
        !faults("# TYPE a counter\na 1\n").is_empty(),
        "it finds what is wrong"
    );
    for name in asked_for() {
        // These have a label that nothing has got yet.
        let later = ["outbox_call_failures_total"];
        assert!(
            text.contains(&format!("\n{name}")) || later.contains(&name),
            "{name} is not there: {text}"
        );
    }
    let (kind, text) = scrape(&relay, "application/openmetrics-text;version=1.0.0").await;
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let payload_or_key = text.contains("\"n\"") || text.contains("topic");
    assert!(!payload_or_key, "nothing of a message is a label: {text}");
}

#[tokio::test]
async fn what_no_relay_can_deliver_is_counted_without_an_endpoint() {
    let database = database().await;
    let client = database.connect().await;
    insert(&client, "nowhere", 3).await;
    let (store, metrics, stop) = (database.store(), Metrics::new(), CancellationToken::new());
    let line = "outbox_database_backlog_messages{endpoint=\"\"} 3";
    let seen = async || {
        metrics
            .text(Format::Prometheus)
            .lines()
            .any(|is| is == line)
    };
    let (mut rng, trail) = (StdRng::seed_from_u64(1), Trail::default());
    let sample = maintenance::sample(&store, &metrics, &trail, SOON, &stop, &mut rng);
    let look = async {
        eventually("it is counted", SOON, seen).await;
        stop.cancel();
    };
    tokio::join!(sample, look);
    let seen = trail.lately(SOON);
    let last = seen.last().and_then(|seen| seen.backlogs.first());
    assert_eq!(
        last.map(|backlog| backlog.messages),
        Some(3),
        "for the page"
    );
}

#[tokio::test]
async fn requests_are_counted_while_they_are_on_their_way() {
    let database = database().await;
    let client = database.connect().await;
    let answer = Arc::new(AtomicBool::new(false));
    let receiver = {
        let answer = Arc::clone(&answer);
        Receiver::start(move |_| match answer.load(Ordering::SeqCst) {
            true => Reply::status(200),
            false => Reply::never(),
        })
        .unwrap()
    };
    let relay = Asked::start(&receiver, &database.url, "").await;
    insert(&client, "t", 6).await;
    receiver.wait_for(4, SOON).await.unwrap();
    // Four slots, and what is prefetched behind them.
    let on_the_way = "outbox_requests_in_flight{endpoint=\"shop\"}";
    becomes(&relay, on_the_way, 4.0).await;
    answer.store(true, Ordering::SeqCst);
    all_settled(&client, Duration::from_secs(60)).await;
    becomes(&relay, on_the_way, 0.0).await;
}
