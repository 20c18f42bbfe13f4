//! `/v1`: what operators see and do over HTTP.
use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    store::{Filter, Mandate, Verb},
};
use reqwest::{
    Method, StatusCode,
    header::{CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    Database,
    asked::{Asked, OPERATOR, READER, SIGNER, WRITER},
    binary::Directory,
    client, database, eventually,
    rows::{SOON, count, insert, one},
};

mod document;
mod glance;
mod problems;
mod sagas;
mod send;
mod webhooks;

/// A relay with an API, its database, and a receiver that refuses the first so many.
struct Stage {
    relay: Asked,
    database: Database,
    client: Client,
    receiver: Receiver,
    tokens: Directory,
}

impl Stage {
    async fn new(refused: u64) -> Stage {
        let database = database().await;
        let client = database.connect().await;
        let receiver = Receiver::start(move |request| match request.number <= refused {
            true => Reply::status(422).body("no such warehouse: Utrecht"),
            false => Reply::status(200),
        })
        .unwrap();
        let tokens = Directory::new();
        let operators = tokens.write("operators", &format!("# who may\nann {OPERATOR}\n"));
        let readers = tokens.write("readers", &format!("bob {READER}\n"));
        let writers = tokens.write("writers", &format!("shop {WRITER}\ntill {WRITER}-2\n"));
        let signers = tokens.write("signers", &format!("cash {SIGNER}\n"));
        let github = tokens.write("github", "an older secret\nIt's a Secret to Everybody\n");
        let stripe = tokens.write("stripe", "whsec_test\n");
        let standard = tokens.write("standard", &format!("{SIGNER}\n"));
        let more = format!(
            "operators_file = {operators:?}\nreaders_file = {readers:?}\nwriters_file = {writers:?}\nsigners_file = {signers:?}\n\
             max_body = \"20KiB\"\n\
             [[webhooks]]\nname = \"code\"\ntopic = \"code.push\"\ntype = \"push\"\nscheme = \"github\"\nsecret_files = [{github:?}]\n\
             headers = [\"X-GitHub-Event\"]\n\
             [[webhooks]]\nname = \"pay\"\ntopic = \"pay\"\nscheme = \"stripe\"\nsecret_files = [{stripe:?}]\n\
             [[webhooks]]\nname = \"mail\"\ntopic = \"mail\"\nsecret_files = [{standard:?}]\n"
        );
        let relay = Asked::start(&receiver, &database.url, &more).await;
        relay.becomes("/readyz", StatusCode::OK).await;
        Stage {
            relay,
            database,
            client,
            receiver,
            tokens,
        }
    }

    /// Inserts as many as are refused, and waits until they are dead.
    async fn dead(&self, rows: i32) -> Vec<Uuid> {
        insert(&self.client, "t", rows).await;
        let dead = async || count(&self.client, "dead_letters").await == i64::from(rows);
        eventually("they are dead", SOON, dead).await;
        let ids = "select id from outbox.dead_letters order by seq";
        let rows = self.client.query(ids, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Asks, and returns the status and the body.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: &str,
    ) -> (StatusCode, Value) {
        let url = format!("http://{}{path}", self.relay.address);
        let request = client()
            .request(method, url)
            .bearer_auth(token)
            .body(body.to_owned());
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        let body: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {status} {text}"));
        if !status.is_success() {
            assert_eq!(
                headers[CONTENT_TYPE], "application/problem+json",
                "{path}: {body}"
            );
            assert_eq!(body["status"], status.as_u16(), "{path}: {body}");
            assert!(
                body["title"].is_string() && body["type"] == "about:blank",
                "{body}"
            );
        }
        (status, body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, READER, "").await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self
            .ask(Method::POST, path, OPERATOR, &body.to_string())
            .await;
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    /// Expects this problem.
    async fn fails(
        &self,
        method: Method,
        path: &str,
        body: &str,
        status: StatusCode,
        detail: &str,
    ) {
        let (is, problem) = self.ask(method, path, OPERATOR, body).await;
        let says = problem["detail"].as_str().unwrap();
        assert!(
            is == status && says.contains(detail),
            "{path}: {is} {says}, not {status} {detail}"
        );
    }
}

#[tokio::test]
async fn nobody_is_answered_without_a_token_and_a_reader_changes_nothing() {
    let stage = Stage::new(0).await;
    let url = format!("http://{}/v1/status", stage.relay.address);
    let none = client().get(&url).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(none.headers()[WWW_AUTHENTICATE], "Bearer");
    let basic = client()
        .get(&url)
        .basic_auth("ann", Some(OPERATOR))
        .send()
        .await
        .unwrap();
    assert_eq!(basic.status(), StatusCode::UNAUTHORIZED);
    let wrong = stage
        .ask(Method::GET, "/v1/status", "0123456789abcdef", "")
        .await;
    assert_eq!(wrong.0, StatusCode::UNAUTHORIZED);
    for token in [READER, OPERATOR] {
        let status = stage.ask(Method::GET, "/v1/status", token, "").await;
        assert_eq!(
            (status.0, &status.1["schema_version"]),
            (StatusCode::OK, &json!(1))
        );
    }
    let alerts = stage.ask(Method::GET, "/v1/alerts", READER, "").await;
    assert_eq!(alerts, (StatusCode::OK, json!({ "alerts": [] })));
    let pause = "/v1/endpoints/shop/pause";
    let refused = stage.ask(Method::POST, pause, READER, "{}").await;
    assert_eq!(refused.0, StatusCode::FORBIDDEN);
    assert_eq!(refused.1["detail"], "bob may read, and change nothing");
    assert_eq!(
        count(&stage.client, "endpoints where paused_at is not null").await,
        0
    );

    // Tokens are renewed in their file.
    stage
        .tokens
        .write("operators", "ann another-token-of-ann\n");
    let renewed = async || {
        stage
            .ask(Method::POST, pause, "another-token-of-ann", "")
            .await
            .0
            == StatusCode::OK
    };
    eventually("the new token is known", SOON, renewed).await;
    let old = stage.ask(Method::POST, pause, OPERATOR, "{}").await;
    assert_eq!(old.0, StatusCode::UNAUTHORIZED);
    let log = stage.relay.process.log();
    for token in [OPERATOR, READER, "another-token"] {
        assert!(!log.contains(token), "no token is logged");
    }
}

#[tokio::test]
async fn without_files_of_tokens_there_is_no_api() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = Asked::start(&receiver, &database.url, "").await;
    let url = format!("http://{}/v1/status", relay.address);
    let answer = client()
        .get(url)
        .bearer_auth(OPERATOR)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn failures_are_found_and_replayed_and_the_job_is_seen_through() {
    let stage = Stage::new(25).await;
    let ids = stage.dead(25).await;
    let page = stage.get("/v1/history?error=UTRECHT&limit=10").await;
    assert_eq!(page["history"].as_array().unwrap().len(), 10);
    let mut seen = 10;
    let mut next = page["next"].as_str().map(str::to_owned);
    while let Some(place) = next {
        let after: String = reqwest::Url::parse_with_params("http://h/", [("after", place)])
            .unwrap()
            .query()
            .unwrap()
            .into();
        let page = stage
            .get(&format!("/v1/history?error=utrecht&limit=10&{after}"))
            .await;
        seen += page["history"].as_array().unwrap().len();
        next = page["next"].as_str().map(str::to_owned);
    }
    assert_eq!(seen, 25);
    let listed = stage
        .get("/v1/messages?state=dead&endpoint=shop&since=1h&limit=3")
        .await;
    assert_eq!(listed["messages"].as_array().unwrap().len(), 3);
    assert!(listed["next"].is_string(), "{listed}");
    let shown = stage.get(&format!("/v1/messages/{}", ids[0])).await;
    assert_eq!(shown["dead"][0]["payload"], json!({ "n": 1 }));
    let why = stage.get(&format!("/v1/messages/{}/why", ids[0])).await;
    assert_eq!(why[0]["state"], "dead");
    let matching = stage.get("/v1/matching?error=utrecht").await;
    assert_eq!(
        (&matching[0]["messages"], &matching[0]["reason"]),
        (&json!(25), &json!("rejected"))
    );

    let url = format!("http://{}/v1/jobs", stage.relay.address);
    let body = json!({ "verb": "replay", "filter": { "error": "utrecht" }, "rate": 500.0, "why": "warehouse added" });
    let begun = client()
        .post(url)
        .bearer_auth(OPERATOR)
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(begun.status(), StatusCode::ACCEPTED);
    assert_eq!(begun.headers()[LOCATION], "/v1/jobs/1");
    stage.receiver.wait_for(50, SOON).await.unwrap();
    let done = async || stage.get("/v1/jobs/1").await["state"] == "done";
    eventually("it is seen through", SOON, done).await;
    let job = stage.get("/v1/jobs").await[0].clone();
    assert_eq!(
        (&job["done"], &job["started_by"], &job["why"]),
        (&json!(25), &json!("ann"), &json!("warehouse added"))
    );
    assert_eq!(count(&stage.client, "dead_letters").await, 0);
    assert_eq!(
        count(
            &stage.client,
            "attempts where outcome = 'replayed' and relay = 'ann'"
        )
        .await,
        25
    );
}

#[tokio::test]
async fn a_job_outlives_the_relay_that_began_it() {
    let database = database().await;
    let client = database.connect().await;
    let dead = "insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason)
                select gen_random_uuid(), '', now(), now(), n, 1, 0, 0, 0, 0, 't', 'shop', 'rejected' from generate_series(1, 1200) n";
    client.batch_execute(dead).await.unwrap();
    let place = "select setval('outbox.messages_seq_seq', 1200)";
    client.batch_execute(place).await.unwrap();
    let store = database.store();
    let all = Filter::default();
    for unattended in [false, true] {
        store
            .start_job(Verb::Discard, &all, Mandate::default(), unattended)
            .await
            .unwrap();
    }
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let tokens = Directory::new();
    let operators = tokens.write("operators", &format!("ann {OPERATOR}\n"));
    let _relay = Asked::start(
        &receiver,
        &database.url,
        &format!("operators_file = {operators:?}"),
    )
    .await;
    let done = async || {
        one::<i64>(
            &client,
            "select count(*) from outbox.jobs where state = 'done'",
        )
        .await
            == 1
    };
    eventually("it is seen through", SOON, done).await;
    assert_eq!(count(&client, "dead_letters").await, 0);
    let attended = "select state || ' ' || done from outbox.jobs where not unattended";
    assert_eq!(
        one::<String>(&client, attended).await,
        "running 0",
        "whoever began that does it"
    );
}

#[tokio::test]
async fn single_messages_keys_and_endpoints_can_be_seen_to() {
    let stage = Stage::new(3).await;
    let ids = stage.dead(3).await;
    let [a, b, c] = [0, 1, 2].map(|n| format!("/v1/messages/{}", ids[n]));
    assert_eq!(
        stage
            .post("/v1/endpoints/shop/pause", json!({ "why": "moving" }))
            .await,
        json!({ "changed": true })
    );
    let status = stage.get("/v1/status").await;
    let shop = &status["endpoints"][0];
    assert_eq!(
        (&shop["paused_by"], &shop["pause_reason"]),
        (&json!("ann"), &json!("moving"))
    );
    let replayed = stage
        .post(&format!("{a}/replay"), json!({ "why": "again" }))
        .await;
    assert_eq!(replayed, json!({ "replayed": [ids[0]], "pending": 0 }));
    let new = stage
        .post(&format!("{b}/replay"), json!({ "new_key": true }))
        .await;
    assert_ne!(new["replayed"][0], json!(ids[1]));
    assert_eq!(
        stage.post(&format!("{c}/discard"), json!({})).await,
        json!({ "discarded": 1 })
    );
    assert_eq!(stage.get(&format!("{a}/why")).await[0]["state"], "paused");
    assert_eq!(
        stage
            .post(&format!("{a}/cancel"), json!({ "why": "no" }))
            .await,
        json!({ "cancelled": 1, "in_flight": 0 })
    );
    assert_eq!(
        stage.post("/v1/endpoints/shop/resume", json!({})).await,
        json!({ "changed": true })
    );
    stage.receiver.wait_for(4, SOON).await.unwrap();
    let held = "insert into outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq) values ('t', '', 'k', 'shop', gen_random_uuid(), 1)";
    stage.client.batch_execute(held).await.unwrap();
    let key = json!({ "topic": "t", "key": "k", "why": "by hand" });
    assert_eq!(
        stage.post("/v1/keys/release", key).await,
        json!({ "released": 1 })
    );
}
