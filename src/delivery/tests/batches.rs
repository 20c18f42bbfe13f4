//! Several messages in one request, as a receiver sees it, and what its answer says of each.

use super::{signing::header, *};

use crate::{
    delivery::{
        batch::{Answered, Config, RESULTS},
        file::tests::Directory,
        format::Shape,
        idempotency::Format,
        sign::{
            Secret,
            tests::{FIRST, signatures},
        },
    },
    lab::receiver::{Receiver, Reply},
};

fn batched(url: &str) -> Endpoint {
    Endpoint {
        batch: Some(Config::default()),
        ..endpoint(url)
    }
}

fn rows<const N: usize>(ids: [u128; N]) -> [Delivery; N] {
    ids.map(|id| Delivery {
        id: Uuid::from_u128(id),
        key: Some(format!("k{id}")),
        ..delivery(Some(b"{\"n\": 1.50}"))
    })
}

async fn attempt_all(endpoint: &Endpoint, rows: &[Delivery]) -> Answered {
    let rows: Vec<&Delivery> = rows.iter().collect();
    Client::new(endpoint)
        .unwrap()
        .attempt_batch(&rows, Propagation::Untouched)
        .await
}

/// What came of messages 1 and 2 after this answer.
async fn answered(reply: Reply) -> Answered {
    let receiver = Receiver::start(move |_| reply.clone()).unwrap();
    attempt_all(&batched(&receiver.url("/")), &rows([1, 2])).await
}

#[tokio::test]
async fn a_request_has_all_messages_and_no_header_of_a_single_one() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut endpoint = batched(&format!("{}/{{topic}}", server.url));
    endpoint.format.headers = vec![("x-tenant".parse().unwrap(), "acme".parse().unwrap())];
    let mut rows = rows([1, 2]);
    // None of these is a header of the request.
    rows[1].headers = vec![
        ("X-Tenant".into(), "mine".into()),
        ("Host".into(), "evil".into()),
    ];
    let Answered { whole, each } = attempt_all(&endpoint, &rows).await;
    assert_eq!((whole.class, each.is_none()), (Class::Success, true));
    let request = soon(&mut rx).await;
    let mut lines: Vec<&str> = request
        .head
        .lines()
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(lines.remove(0), "POST /hook/order.created HTTP/1.1");
    lines.sort_unstable();
    let names: Vec<&str> = lines
        .iter()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    let want = [
        "accept",
        "content-length",
        "content-type",
        "host",
        "outbox-batch",
        "outbox-topic",
        "user-agent",
        "x-tenant",
    ];
    assert_eq!(names, want);
    assert_eq!(header(&request, "content-type"), "application/json");
    assert_eq!(header(&request, "outbox-batch"), "2");
    assert_eq!(header(&request, "outbox-topic"), "order.created");
    assert_eq!(header(&request, "x-tenant"), "acme");
    let items: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
    let ids: Vec<_> = items
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    let want = rows.each_ref().map(|row| row.id.to_string());
    assert_eq!(ids, want);
    assert_eq!(items[0]["idempotency_key"], items[0]["id"]);
    assert_eq!(items[1]["headers"]["X-Tenant"], "mine");

    endpoint.idempotency.format = Format::None;
    attempt_all(&endpoint, &rows).await;
    let request = soon(&mut rx).await;
    let items: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
    assert!(items[0].get("idempotency_key").is_none());
}

#[tokio::test]
async fn the_signed_id_is_that_of_the_set_of_messages() {
    let (server, mut rx) = Server::recording(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut endpoint = batched(&server.url);
    endpoint.sign.secrets = vec![Secret::parse(FIRST).unwrap()];
    endpoint.format.gzip_above = Some(1024);
    let mut large = rows([1, 2]);
    large[0].body = Some(Bytes::from(vec![b'1'; 5000]));
    let mut ids = Vec::new();
    for rows in [
        &rows([1, 2])[..],
        &rows([2, 1]),
        &large,
        &rows([1, 3]),
        &rows([1]),
    ] {
        attempt_all(&endpoint, rows).await;
        let request = soon(&mut rx).await;
        let id = header(&request, "webhook-id");
        let seconds = header(&request, "webhook-timestamp").parse().unwrap();
        let want = signatures(&[FIRST], &id, seconds, &request.body);
        let found = header(&request, "webhook-signature");
        assert_eq!(found, want["webhook-signature"].to_str().unwrap());
        ids.push(id);
    }
    assert_eq!((&ids[0], &ids[0]), (&ids[1], &ids[2]));
    assert!(ids[0] != ids[3] && ids[0] != ids[4] && ids[3] != ids[4]);
    assert!(rows([1]).iter().all(|row| row.id.to_string() != ids[4]));
}

#[tokio::test]
async fn an_answer_with_results_settles_each() {
    let [one, two] = rows([1, 2]).map(|row| row.id);
    let body = format!(
        r#"{{"results": [{{"id": "{two}", "status": 503, "retry_after": 7}}, {{"id": "{one}", "status": 200}}]}}"#
    );
    for status in [200, 207] {
        let Answered { whole, each } = answered(Reply::status(status).body(body.clone())).await;
        assert_eq!((whole.class, whole.status), (Class::Success, Some(status)));
        let [first, second] = each.unwrap().try_into().unwrap();
        assert_eq!((first.class, first.status), (Class::Success, Some(200)));
        assert_eq!(second.class, Class::Unavailable);
        assert_eq!(second.retry_after, Some(Duration::from_secs(7)));
        let want = format!(r#"{{"id": "{two}", "status": 503, "retry_after": 7}}"#);
        assert_eq!(second.response, Some(want));
        assert_eq!(second.duration, whole.duration);
    }
    // No more than an answer to all of them.
    for status in [404, 500] {
        let Answered { whole, each } = answered(Reply::status(status).body(body.clone())).await;
        assert_eq!((whole.status, each.is_none()), (Some(status), true));
    }
    // An answer that is not whole is none.
    let reply = Reply::status(207).body(body).reset();
    let Answered { whole, each } = answered(reply).await;
    assert_eq!((whole.class, each.is_none()), (Class::Reset, true));
}

/// A secret may be anything; what looks like it is hidden, and counts as it was sent.
#[tokio::test]
async fn a_secret_that_stands_in_results_does_not_change_them() {
    let [one, two] = rows([1, 2]).map(|row| row.id);
    let body = format!(
        r#"{{"n": 10023, "results": [{{"id": "{one}", "status": 200, "n": 10023}},
           {{"id": "{two}", "status": 503, "error": "no order 1002\u0033", "retry_after": 10023}}]}}"#
    );
    let reply = Reply::status(200).body(body);
    let receiver = Receiver::start(move |_| reply.clone()).unwrap();
    let directory = Directory::new();
    let mut endpoint = batched(&receiver.url("/"));
    let secrets = [("x-number", "10023"), ("x-word", "\"results\"")];
    for (name, text) in secrets {
        let file = (name.parse().unwrap(), directory.write(name, text));
        endpoint.format.header_files.push(file);
    }
    let Answered { whole, each } = attempt_all(&endpoint, &rows([1, 2])).await;
    assert_eq!(whole.class, Class::Success);
    let [first, second] = each.unwrap().try_into().unwrap();
    assert_eq!((first.class, first.status), (Class::Success, Some(200)));
    let want = format!(r#"{{"id": "{one}", "status": 200, "n": [redacted]}}"#);
    assert_eq!(first.response, Some(want));
    assert_eq!(second.class, Class::Unavailable);
    assert_eq!(second.retry_after, Some(Duration::from_secs(10023)));
    let want = "HTTP 503 Service Unavailable: no order [redacted]";
    assert_eq!(second.error.as_deref(), Some(want));
    let want = format!(
        r#"{{"id": "{two}", "status": 503, "error": "no order [redacted]", "retry_after": [redacted]}}"#
    );
    assert_eq!(second.response, Some(want));
    let response = whole.response.unwrap();
    let start = r#"{"n": [redacted], [redacted]: ["#;
    assert!(response.starts_with(start), "{response}");
}

#[tokio::test]
async fn results_are_read_up_to_their_limit() {
    let [one, two] = rows([1, 2]).map(|row| row.id);
    let of_length = |length: usize| {
        let results = format!(
            r#""results": [{{"id": "{one}", "status": 422}}, {{"id": "{two}", "status": 200}}]}}"#
        );
        let filling = length - results.len() - r#"{"f": "", "#.len();
        format!(r#"{{"f": "{}", {results}"#, "x".repeat(filling))
    };
    let body = of_length(RESULTS);
    assert_eq!(body.len(), RESULTS);
    let Answered { whole, each } = answered(Reply::status(200).body(body)).await;
    assert_eq!(whole.response.unwrap().len(), EXCERPT);
    let classes: Vec<Class> = each.unwrap().iter().map(|one| one.class).collect();
    assert_eq!(classes, [Class::Rejected, Class::Success]);

    // What begins with results and is longer may hold a refusal; all else says nothing of single messages.
    let mut long = format!(r#"{{"results": [{{"id": "{one}", "status": 422}}, "#);
    long.push_str(&" ".repeat(RESULTS));
    for (status, body, want) in [
        (207, long.clone(), Class::Protocol),
        (200, long, Class::Protocol),
        (200, "x".repeat(RESULTS + 1), Class::Success),
        (200, of_length(RESULTS + 200), Class::Success),
        (207, of_length(RESULTS + 200), Class::Protocol),
    ] {
        let Answered { whole, each } = answered(Reply::status(status).body(body)).await;
        assert_eq!((whole.class, each.is_none()), (want, true), "{status}");
    }
}

#[tokio::test]
async fn what_can_not_be_batched_is_no_endpoint() {
    let binary = Endpoint {
        format: format::Config {
            shape: Shape::Binary { source: "/".into() },
            ..Default::default()
        },
        ..batched("http://h/")
    };
    for (endpoint, want) in [
        (binary, "endpoint test: format: can't be cloudevents-binary"),
        (
            batched("http://h/{topic}/{key}"),
            "endpoint test: url: can't have {key} beside batch",
        ),
    ] {
        let error = Client::new(&endpoint).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
    assert!(Client::new(&batched("http://h/{topic}?t={topic}")).is_ok());
}
