//! The page for operators, in a real browser: it shows what is there, does what it is told, and everybody can use it.
//!
//! What happens in the browser stands in `page/*.mjs`; what the database says then stands here.
mod sagas;

use std::{env, process::Stdio};

use outbox_relay::lab::receiver::{Receiver, Reply};
use reqwest::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    Database,
    asked::{Asked, OPERATOR, READER},
    binary::Directory,
    client, database, eventually,
    rows::{SOON, count, insert, one},
};

/// Messages that are refused, so that they are dead.
const REFUSED: i32 = 25;

/// Dead letters of long ago.
const ARCHIVE: i32 = 5000;

/// Attempts at an endpoint of another relay.
const BILLING: i32 = 480;

/// Whoever may write something writes this.
const MARKUP: &str = "<img src=x onerror=\"window.hacked = 1\">";

const FILL: &str = "
    insert into outbox.endpoints (endpoint) values ('archive'), ('billing') on conflict do nothing;
    insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, outcome, settlement, relay, error)
    select greatest(now() - interval '1800 ms' * n, current_date at time zone 'UTC'), interval '1 ms' * (5 + n % 40), gen_random_uuid(), n, 0, 1,
           case when n % 25 = 0 then 503 else 200 end, 'invoice.sent', 'billing', case when n % 25 = 0 then 'unavailable' else 'success' end,
           case when n % 25 = 0 then 'retry' else 'delivered' end, 'relay-2',
           case when n % 25 = 0 then 'HTTP 503 Service Unavailable: shard ' || n || ' of ' || gen_random_uuid() end
      from generate_series(1, 480) n;
    insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason, key,
        payload, last_error)
    select gen_random_uuid(), '', now() - interval '1 min' * n, now() - interval '1 day', n, 8, 0, 0, 0, 8, 'old.order', 'archive', 'attempts', 'k' || n,
           to_json(n), 'HTTP 500 Internal Server Error: disk ' || n % 7 from generate_series(1, 5000) n;
    select setval('outbox.messages_seq_seq', 10000)";

/// A relay with a page, and something to see on it.
struct Stage {
    relay: Asked,
    _database: Database,
    client: Client,
    receiver: Receiver,
    _tokens: Directory,
    given: Value,
}

impl Stage {
    async fn new() -> Stage {
        let database = database().await;
        let client = database.connect().await;
        client.batch_execute(FILL).await.unwrap();
        let receiver = Receiver::start(|request| {
            let nasty = request.body.windows(7).any(|part| part == b"onerror");
            match request.number <= u64::try_from(REFUSED).unwrap() || nasty {
                true => Reply::status(422).body("no such warehouse: Utrecht <img src=x onerror=1>"),
                false => Reply::status(200),
            }
        })
        .unwrap();
        let tokens = Directory::new();
        let operators = tokens.write("operators", &format!("ann {OPERATOR}\n"));
        let readers = tokens.write("readers", &format!("bob {READER}\n"));
        let more = format!(
            "sample_every = \"1s\"\noperators_file = {operators:?}\nreaders_file = {readers:?}"
        );
        let relay = Asked::start(&receiver, &database.url, &more).await;
        relay.becomes("/readyz", StatusCode::OK).await;
        insert(&client, "t", REFUSED).await;
        let dead = async |many: i32| {
            let dead = async || {
                count(&client, "dead_letters where endpoint = 'shop'").await == i64::from(many)
            };
            eventually("they are dead", SOON, dead).await;
        };
        dead(REFUSED).await;
        let nasty: Uuid = client
            .query_one(
                "insert into outbox.messages (topic, key, type, payload)
                 values ($1, $1, $1, json_build_object('n', 12345678901234567890.50, 'markup', $1::text)) returning id",
                &[&MARKUP],
            )
            .await
            .unwrap()
            .get(0);
        dead(REFUSED + 1).await;
        insert(&client, "t", 10).await;
        let done = async || count(&client, "messages").await == 0;
        eventually("all else is delivered", SOON, done).await;
        let first = "select id from outbox.dead_letters where topic = 't' order by seq limit 1";
        let given = json!({
            "base": format!("http://{}/", relay.address), "operator": OPERATOR, "reader": READER,
            "refused": REFUSED + 1, "archive": ARCHIVE, "billing": BILLING,
            "nasty": nasty, "one": one::<Uuid>(&client, first).await,
        });
        Stage {
            relay,
            _database: database,
            client,
            receiver,
            _tokens: tokens,
            given,
        }
    }

    /// Runs one of the scripts, and shows what it said if it does not end well.
    async fn browse(&self, script: &str) {
        let output = Command::new("node")
            .arg(format!("tests/it/page/{script}"))
            .arg(self.given.to_string())
            .env("OUTBOX_TEST_BROWSER", variable("OUTBOX_TEST_BROWSER"))
            .env("OUTBOX_TEST_CHROMIUM", variable("OUTBOX_TEST_CHROMIUM"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{script}: {said}");
    }
}

fn variable(name: &str) -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "it is not configuration of the relay, but tells the tests where they are"
    )]
    let value = env::var(name);
    value.unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests with scripts/test, which sets it")
    })
}

#[tokio::test]
async fn a_reader_sees_what_is_there_and_changes_nothing() {
    let stage = Stage::new().await;
    stage.browse("look.mjs").await;
    let client = &stage.client;
    assert_eq!(
        count(client, "endpoints where paused_at is not null").await,
        0
    );
    let all = i64::from(ARCHIVE + REFUSED + 1);
    assert_eq!(count(client, "dead_letters").await, all);
    let log = stage.relay.process.log();
    assert!(!log.contains(READER), "no token is logged");
}

#[tokio::test]
async fn an_operator_pauses_and_replays() {
    let stage = Stage::new().await;
    stage.browse("act.mjs").await;
    let client = &stage.client;
    assert_eq!(
        count(client, "endpoints where paused_at is not null").await,
        0
    );
    let of = async |settlement: &str, why: &str| {
        let from = format!(
            "attempts where settlement = '{settlement}' and reason = '{why}' and relay = 'ann'"
        );
        count(client, &from).await
    };
    assert_eq!(
        (
            of("replayed", "elsewhere").await,
            of("discarded", "a test").await,
            of("replayed", "warehouse added").await,
        ),
        (1, 1, i64::from(REFUSED) - 1)
    );
    let sent = u64::try_from(REFUSED + 1 + 10 + REFUSED).unwrap();
    stage.receiver.wait_for(sent, SOON).await.unwrap();
    let left = count(client, "dead_letters where endpoint = 'archive'").await;
    assert!(left > i64::from(ARCHIVE) - 600, "{left} are left");
}

#[tokio::test]
async fn everybody_can_use_it() {
    let mut stage = Stage::new().await;
    #[allow(
        clippy::disallowed_methods,
        reason = "where somebody wants to look at it"
    )]
    let screenshots = env::var("OUTBOX_TEST_SCREENSHOTS");
    stage.given["screenshots"] = json!(screenshots.ok());
    let job = "select outbox.start_job('replay', p_error => 'nothing says this')";
    stage.client.execute(job, &[]).await.unwrap();
    stage.sagas().await;
    stage.browse("axe.mjs").await;
}

#[tokio::test]
async fn its_files_say_what_a_browser_may_do() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let tokens = Directory::new();
    let readers = tokens.write("readers", &format!("bob {READER}\n"));
    let more = format!("readers_file = {readers:?}");
    let relay = Asked::start(&receiver, &database.url, &more).await;
    let get = async |path: &str| {
        let url = format!("http://{}{path}", relay.address);
        client().get(url).send().await.unwrap()
    };
    for (path, kind) in [
        ("/", "text/html"),
        ("/page/main.js", "text/javascript"),
        ("/page/views/search.js", "text/javascript"),
        ("/page/vendor/uplot/uPlot.min.css", "text/css"),
    ] {
        let answer = get(path).await;
        let headers = answer.headers();
        let says = |name: &str| headers[name].to_str().unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert!(says(CONTENT_TYPE.as_str()).starts_with(kind), "{path}");
        let policy = says(CONTENT_SECURITY_POLICY.as_str());
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(says("x-content-type-options"), "nosniff");
        assert_eq!(says("referrer-policy"), "no-referrer");
        assert_eq!(says(CACHE_CONTROL.as_str()), "no-cache");
        let url = format!("http://{}{path}", relay.address);
        let again = client().get(url).header(IF_NONE_MATCH, &headers[ETAG]);
        let again = again.send().await.unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
    }
    for path in [
        "/page/nothing",
        "/page/../admin.rs",
        "/page/vendor/uplot/LICENSE",
    ] {
        assert_eq!(get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }

    // Where there is no API, there is no page.
    let none = Asked::start(&receiver, &database.url, "").await;
    let url = format!("http://{}/", none.address);
    let answer = client().get(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}
