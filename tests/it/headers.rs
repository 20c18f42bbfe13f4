//! A row's headers add to a request and never split it or replace ours, even where the table's CHECKs are gone.
use outbox_relay::lab::receiver::Reply;

use crate::support::{
    relay::start,
    rows::{SOON, all_settled, around_checks, count, insert_one, one, outcomes},
    scene::Scene,
};

/// Headers as JSON that would end one, go on in the next line, begin a second request, or speak in our name.
const BAD: [&str; 17] = [
    r#"{"x": "a\r\nevil: 1"}"#,
    r#"{"x": "a\r\n evil: 1"}"#,
    r#"{"x": "a\r\n\tevil"}"#,
    r#"{"x": "a\r\n\r\nPOST /evil HTTP/1.1\r\nhost: evil\r\n\r\n"}"#,
    r#"{"x": "a\revil: 1"}"#,
    r#"{"x": "a\nevil: 1"}"#,
    r#"{"x": "evil\r"}"#,
    r#"{"x": "evil\u007f"}"#,
    r#"{"x": "evil\u0085\u2028"}"#,
    r#"{"x": "evil\u560a"}"#,
    r#"{"x\r\nevil": "1"}"#,
    r#"{"x: 1\nevil": "1"}"#,
    r#"{"evil ": "1"}"#,
    r#"{"": "evil"}"#,
    r#"{"Content-Length": "0"}"#,
    r#"{"Idempotency-Key": "evil"}"#,
    r#"{"Proxy-Authorization": "evil"}"#,
];

#[tokio::test]
async fn no_header_of_a_row_splits_a_request_or_replaces_ours() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let mut bad = Vec::new();
    for headers in BAD {
        let insert = format!(
            "insert into outbox.messages (topic, payload, headers) values ('t', '1', '{headers}')"
        );
        around_checks(&scene.client, &insert).await;
        let newest = "select id from outbox.messages order by seq desc limit 1";
        bad.push(one(&scene.client, newest).await);
    }
    let relay = start(scene.relay());
    all_settled(&scene.client, SOON).await;
    for (id, headers) in bad.into_iter().zip(BAD) {
        let found = outcomes(&scene.client, id).await;
        assert_eq!(found, ["unsendable"], "{headers}");
    }
    // Not even a connection was made for them.
    assert_eq!(scene.receiver.connections(), 0);
    let dead = "dead_letters where reason = 'rejected'";
    assert_eq!(count(&scene.client, dead).await, 17);

    let values = r#"'2', '{"x": "good"}'"#;
    insert_one(&scene.client, "payload, headers", values).await;
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    let requests = scene.receiver.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("x"), Some("good"));
    assert_eq!(requests[0].header("evil"), None);

    // NUL does not even get into the table: jsonb has none.
    let nul = r#"insert into outbox.messages (topic, payload, headers) values ('t', '1', '{"x": "a\u0000"}')"#;
    assert!(scene.client.batch_execute(nul).await.is_err());
}
