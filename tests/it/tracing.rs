//! An attempt is a span of its message's trace: the receiver hangs below it, and a collector sees it.
use std::time::Duration;

use outbox_relay::lab::receiver::{Receiver, Reply, Request};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Database,
    asked::Asked,
    binary::Directory,
    database, eventually,
    rows::{SOON, all_settled, insert_one},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn sampled(flag: u8) -> String {
    format!("00-{TRACE}-{PARENT}-0{flag}")
}

/// A collector that takes everything.
fn collector() -> Receiver {
    Receiver::start(|_| Reply::status(200).body("{}")).unwrap()
}

/// `[tracing]` to a collector.
fn tracing(collector: &Receiver, more: &str) -> String {
    format!(
        "[tracing]\notlp_url = \"{}\"\n{more}\n",
        collector.url("").trim_end_matches('/')
    )
}

/// The spans that it got so far.
fn spans(collector: &Receiver) -> Vec<Value> {
    let mut all = Vec::new();
    for request in collector.requests() {
        assert_eq!(request.path, "/v1/traces");
        assert_eq!(request.header("content-type"), Some("application/json"));
        let body = unpacked(&request);
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        all.extend(spans.as_array().unwrap().clone());
    }
    all
}

fn unpacked(request: &Request) -> Value {
    match request.header("content-encoding") {
        Some("gzip") => {
            serde_json::from_reader(flate2::read::GzDecoder::new(&*request.body)).unwrap()
        }
        _ => serde_json::from_slice(&request.body).unwrap(),
    }
}

async fn so_many(collector: &Receiver, count: usize) -> Vec<Value> {
    let what = format!("{count} spans are there");
    eventually(&what, SOON, async || spans(collector).len() >= count).await;
    let spans = spans(collector);
    assert_eq!(spans.len(), count);
    spans
}

/// What an attribute says.
fn attribute(attributes: &Value, key: &str) -> Value {
    let mut all = attributes.as_array().unwrap().iter();
    let found = all.find(|one| one["key"] == key);
    found.map_or(Value::Null, |one| {
        let values = one["value"].as_object().unwrap();
        values.values().next().unwrap().clone()
    })
}

/// Trace id, span id and flags of the header that a receiver got.
fn got(request: &Request) -> (String, String, String) {
    let header = request.header("traceparent").unwrap();
    let fields: Vec<&str> = header.split('-').collect();
    assert_eq!((fields.len(), fields[0]), (4, "00"), "{header}");
    (fields[1].into(), fields[2].into(), fields[3].into())
}

/// Inserts a row with these headers, and runs a relay with this configuration until it is delivered.
async fn deliver(database: &Database, receiver: &Receiver, headers: &Value, more: &str) {
    let client = database.connect().await;
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/hook?token=s3cret"), more);
    insert_one(&client, "headers, payload", &format!("'{headers}', '{{}}'")).await;
    let mut relay = directory.run(&config, &database.url, "relay");
    all_settled(&client, SOON).await;
    relay.signal(Signal::TERM);
    assert!(relay.end(SOON).await.success(), "{}", relay.log());
}

#[tokio::test]
async fn each_attempt_is_a_span_of_its_own_below_the_rows() {
    let (database, collector) = (database().await, collector());
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(503),
        _ => Reply::status(200),
    })
    .unwrap();
    let directory = Directory::new();
    let headers = json!({"traceparent": sampled(1), "tracestate": "a=1"});
    let client = database.connect().await;
    let more = tracing(&collector, "service_name = \"shop\"");
    let config = directory.config(&receiver.url("/hook?token=s3cret"), &more);
    let id = insert_one(&client, "headers, payload", &format!("'{headers}', '{{}}'")).await;
    let relay = directory.run(&config, &database.url, "relay-1");
    all_settled(&client, SOON).await;
    let spans = so_many(&collector, 2).await;
    let requests = receiver.requests();
    for (request, span) in requests.iter().zip(&spans) {
        let (trace, own, flags) = got(request);
        assert_eq!((&*trace, &*flags), (TRACE, "01"));
        assert_ne!(own, PARENT);
        assert_eq!(request.header("tracestate"), Some("a=1"));
        assert_eq!(span["traceId"], TRACE);
        assert_eq!(span["spanId"], *own);
        assert_eq!(span["parentSpanId"], PARENT);
        assert_eq!(span["name"], "deliver t");
        assert_eq!(span["kind"], 3);
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"));
        let says = |key: &str| attribute(&span["attributes"], key);
        assert_eq!(says("messaging.system"), "outbox");
        assert_eq!(says("messaging.destination.name"), "t");
        assert_eq!(says("messaging.message.id"), id.to_string());
        assert_eq!(says("http.request.method"), "POST");
        assert_eq!(says("url.full"), receiver.url("/hook"), "without its query");
        assert_eq!(says("outbox.endpoint"), "shop");
    }
    assert_ne!(spans[0]["spanId"], spans[1]["spanId"]);
    let says = |n: usize, key: &str| attribute(&spans[n]["attributes"], key);
    assert_eq!(says(0, "http.response.status_code"), "503");
    assert_eq!(says(0, "error.type"), "unavailable");
    assert_eq!(says(0, "outbox.attempt"), "1");
    assert_eq!(spans[0]["status"]["code"], 2);
    assert_eq!(says(1, "http.response.status_code"), "200");
    assert_eq!(says(1, "error.type"), Value::Null);
    assert_eq!(says(1, "outbox.attempt"), "2");
    assert_eq!(spans[1]["status"], Value::Null);
    let resource =
        &unpacked(&collector.requests()[0])["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(attribute(resource, "service.name"), "shop");
    assert_eq!(attribute(resource, "service.instance.id"), "relay-1");
    let line = relay.log();
    let line = line.lines().find(|line| line.contains("delivery failed"));
    let line: Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!(line["span_id"], spans[0]["spanId"]);
}

#[tokio::test]
async fn what_is_not_sampled_is_continued_and_not_told() {
    let (database, collector) = (database().await, collector());
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let headers = json!({"traceparent": sampled(0)});
    deliver(&database, &receiver, &headers, &tracing(&collector, "")).await;
    let (trace, own, flags) = got(&receiver.requests()[0]);
    assert_eq!((&*trace, &*flags), (TRACE, "00"));
    assert_ne!(own, PARENT);
    // The relay has ended, and sent what it had.
    assert_eq!(collector.count(), 0);
}

#[tokio::test]
async fn a_row_without_a_valid_trace_begins_one_where_spans_are_collected() {
    for (headers, sample, flags) in [
        (
            json!({"traceparent": "00-0", "tracestate": "a=1"}),
            "1",
            "01",
        ),
        (json!({"tracestate": "a=1"}), "1.0", "01"),
        (json!({}), "0.0", "00"),
    ] {
        let (database, collector) = (database().await, collector());
        let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
        let more = tracing(&collector, &format!("sample = {sample}"));
        deliver(&database, &receiver, &headers, &more).await;
        let request = receiver.requests().remove(0);
        let (trace, own, sent) = got(&request);
        assert_eq!(sent, flags);
        assert_eq!(request.header("tracestate"), None);
        let spans = spans(&collector);
        assert_eq!(spans.len(), usize::from(flags == "01"), "sent at the stop");
        for span in spans {
            assert_eq!(span["traceId"], *trace);
            assert_eq!(span["spanId"], *own);
            assert_eq!(span["parentSpanId"], Value::Null);
        }
    }
}

#[tokio::test]
async fn without_a_collector_a_trace_is_continued_and_none_begun() {
    for (headers, continued) in [
        (
            json!({"traceparent": sampled(1), "tracestate": "a=1"}),
            true,
        ),
        (json!({"traceparent": "00-0", "tracestate": "a=1"}), false),
        (json!({}), false),
    ] {
        let database = database().await;
        let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
        deliver(&database, &receiver, &headers, "").await;
        let request = receiver.requests().remove(0);
        assert_eq!(request.header("traceparent").is_some(), continued);
        assert_eq!(request.header("tracestate").is_some(), continued);
        if continued {
            let (trace, own, _) = got(&request);
            // Nobody will ever see the attempt's own span.
            assert!(trace == TRACE && own == PARENT);
        }
    }
}

#[tokio::test]
async fn an_endpoint_can_go_without() {
    let (database, collector) = (database().await, collector());
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let headers = json!({"traceparent": "anything", "tracestate": "a=1"});
    let more = format!("{}\n[defaults]\ntrace = false\n", tracing(&collector, ""));
    deliver(&database, &receiver, &headers, &more).await;
    let request = receiver.requests().remove(0);
    assert_eq!(request.header("traceparent"), Some("anything"));
    assert_eq!(request.header("tracestate"), Some("a=1"));
    assert_eq!(collector.count(), 0);
}

#[tokio::test]
async fn a_batch_is_one_span_with_links_to_the_traces_of_its_messages() {
    let (database, collector) = (database().await, collector());
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let client = database.connect().await;
    client
        .batch_execute(&format!(
            "insert into outbox.messages (topic, headers, payload)
             select 't', json_build_object('traceparent', format('00-%s-%s-01', lpad(n::text, 32, '0'), lpad(n::text, 16, '0'))), '1'
               from generate_series(1, 3) n;
             insert into outbox.messages (topic, headers, payload) values ('t', '{{\"traceparent\": \"{}\"}}', '1');
             insert into outbox.messages (topic, payload) values ('t', '1')",
            sampled(0)
        ))
        .await
        .unwrap();
    let directory = Directory::new();
    let more = format!(
        "{}\n[defaults]\nbatch = {{ messages = 10 }}\n",
        tracing(&collector, "")
    );
    let config = directory.config(&receiver.url("/"), &more);
    let _relay = directory.run(&config, &database.url, "relay");
    all_settled(&client, SOON).await;
    assert_eq!(receiver.count(), 1);
    let span = so_many(&collector, 1).await.remove(0);
    let (trace, own, flags) = got(&receiver.requests()[0]);
    assert_eq!(flags, "01", "one of them is");
    assert_eq!(span["traceId"], *trace);
    assert_eq!(span["spanId"], *own);
    let links = span["links"].as_array().unwrap();
    let linked: Vec<String> = links
        .iter()
        .map(|link| link["traceId"].as_str().unwrap().to_owned())
        .collect();
    let numbered = |n: u32| format!("{n:032}");
    assert_eq!(
        linked,
        [numbered(1), numbered(2), numbered(3), TRACE.to_owned()]
    );
    let count = attribute(&span["attributes"], "messaging.batch.message_count");
    assert_eq!(count, "5");
}

#[tokio::test]
async fn a_collector_that_is_away_harms_nothing() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let silent = Receiver::start(|_| Reply::never()).unwrap();
    let insert = "insert into outbox.messages (topic, payload) select 't', to_json(n) from generate_series(1, 6000) n";
    client.batch_execute(insert).await.unwrap();
    let more = tracing(&silent, "headers = { X-Key = \"s3cr3t\" }");
    let relay = Asked::start(&receiver, &database.url, &more).await;
    all_settled(&client, Duration::from_secs(60)).await;
    assert_eq!(receiver.count(), 6000);
    let dropped = async || {
        let url = format!("http://{}/metrics", relay.address);
        let text = crate::support::client().get(url).send().await.unwrap();
        let text = text.text().await.unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("outbox_spans_total{state=\"dropped\"}"))?;
        line.rsplit_once(' ')?.1.parse::<u64>().ok()
    };
    // The queue holds 4,096, and a request 512.
    eventually("the rest is dropped, and counted", SOON, async || {
        dropped()
            .await
            .is_some_and(|count| count >= 6000 - 4096 - 512)
    })
    .await;
    silent.wait_for(1, SOON).await.unwrap();
    assert_eq!(silent.requests()[0].header("x-key"), Some("s3cr3t"));
    let mut process = relay.process;
    process.signal(Signal::TERM);
    assert!(process.end(SOON).await.success(), "{}", process.log());
    let log = process.log();
    assert!(log.contains("did not take the last spans in time"), "{log}");
    assert!(!log.contains("s3cr3t"), "{log}");
}
