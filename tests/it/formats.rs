//! From the file's keys to the wire, through a relay and a database: formats, signatures, retries under new secrets.

use std::{env, fs, process, time::Duration};

use bytes::Bytes;
use outbox_relay::{
    app, config,
    lab::receiver::{Receiver, Reply, Request},
};
use serde_json::json;

use crate::{support::database, verifiers::judge};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

#[tokio::test]
async fn a_file_says_what_is_sent_and_rows_in_backoff_are_signed_anew() {
    let database = database().await;
    // Each row fails once, and comes again under other secrets.
    let receiver = Receiver::start(|request| match request.header("outbox-attempt") {
        Some("1") => Reply::status(503),
        _ => Reply::status(204),
    })
    .unwrap();
    let secrets = env::temp_dir().join(format!("outbox-relay-formats-{}", process::id()));
    fs::write(&secrets, OLD).unwrap();
    let text = format!(
        r#"
        [defaults]
        retry = {{ base = "3s", cap = "3s" }}
        format = "cloudevents-structured"
        headers = {{ X-Env = "test" }}

        [[endpoints]]
        name = "shop"
        url = "{}"
        method = "PUT"
        source = "/shop"
        idempotency = {{ format = "bare", header = "X-Request-Id" }}
        sign.secret_files = ["{}"]

        [[routes]]
        topic = "**"
        to = ["shop"]
        "#,
        receiver.url("/in/{topic}?k={key}"),
        secrets.display()
    );
    let variables = [("DATABASE_URL".to_owned(), database.url.clone())].into();
    let config = config::parse("relay.toml", &text, &variables, "host").unwrap();
    let insert = "insert into outbox.messages (topic, key, type, payload, headers) \
                  select 'order.paid', 'k ' || n, 'paid.v1', '{\"n\": 1.50}', '{\"X-Row\": \"1\"}' \
                  from generate_series(1, 3) n";
    database.connect().await.execute(insert, &[]).await.unwrap();

    let deadline = Duration::from_secs(30);
    let delivered = async {
        receiver.wait_for(3, deadline).await.unwrap();
        let draft = secrets.with_extension("draft");
        fs::write(&draft, format!("{NEW}\n{OLD}\n")).unwrap();
        fs::rename(&draft, &secrets).unwrap();
        receiver.wait_for(6, deadline).await.unwrap();
    };
    Box::pin(app::run(config, None, false, delivered))
        .await
        .unwrap();
    fs::remove_file(&secrets).unwrap();

    let requests = receiver.requests();
    assert_eq!(requests.len(), 6);
    for request in &requests {
        assert_eq!(request.method, "PUT");
        assert!(
            request.path.starts_with("/in/order.paid?k=k%20"),
            "{}",
            request.path
        );
        assert_eq!(request.header("x-env"), Some("test"));
        assert_eq!(request.header("x-row"), Some("1"));
        assert_eq!(request.header("x-request-id"), request.header("webhook-id"));
        let old = json!({ "secret": OLD });
        assert_eq!(judge("webhook", request, &old), Ok(json!(true)));
        let event = judge("cloudevent", request, &json!({})).unwrap();
        assert_eq!(event["attributes"]["type"], "paid.v1");
        let id = event["attributes"]["id"].as_str();
        assert_eq!(id, request.header("webhook-id"));
        let text = String::from_utf8(request.body.to_vec()).unwrap();
        assert!(text.ends_with(r#","data":{"n": 1.50}}"#), "{text}");
    }
    let first = |request: &&Request| request.header("outbox-attempt") == Some("1");
    assert_eq!(requests.iter().filter(first).count(), 3);
    let new = json!({ "secret": NEW });
    assert!(judge("webhook", &requests[0], &new).is_err());
    // Files are looked at once a second; a row whose delay is drawn short may come before.
    let third = requests[2].at;
    let late = requests.iter().filter(|request| {
        let since = request.at.duration_since(third);
        since > Duration::from_millis(1500)
    });
    for request in late {
        assert_eq!(judge("webhook", request, &new), Ok(json!(true)));
    }
    let mut forged = requests[5].clone();
    forged.body = Bytes::from_static(b"{}");
    assert!(judge("webhook", &forged, &json!({ "secret": OLD })).is_err());
}
