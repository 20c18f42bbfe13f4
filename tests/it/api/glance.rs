//! What is seen at a glance: what was attempted over time, and what fails for the same reason.
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{OPERATOR, READER, Stage};

/// Two piles within a second each: one that is read whole, and one that is not; a death without an attempt, and what an operator did.
const FILL: &str = "
    insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, outcome, settlement, relay, error)
    select greatest(now() - interval '5 min', current_date at time zone 'UTC') + interval '1 ms' * n, interval '1 ms' * n, gen_random_uuid(), n, 0, 1,
           case when n % 10 = 0 then 503 else 200 end, 't', 'pile', case when n % 10 = 0 then 'unavailable' else 'success' end,
           case when n % 10 = 0 then 'retry' else 'delivered' end, 'r',
           case when n % 10 = 0 then 'HTTP 503 Service Unavailable: order ' || n || ', trace ' || gen_random_uuid() end
      from generate_series(1, 900) n;
    insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, outcome, settlement, relay, error)
    values (now(), '0', gen_random_uuid(), 1, 0, 0, 't', 'late', 'expired', 'dead', 'r', 'its time was over'),
           (now(), '0', gen_random_uuid(), 1, 0, 0, 't', 'late', 'replayed', 'replayed', 'ann', null)";

fn sum(overview: &Value, endpoint: &str, field: &str) -> i64 {
    let pieces = overview["pieces"].as_array().unwrap().iter();
    pieces
        .filter(|piece| piece["endpoint"] == endpoint)
        .map(|piece| piece[field].as_i64().unwrap())
        .sum()
}

#[tokio::test]
async fn attempts_are_counted_in_pieces_and_failures_in_groups() {
    let stage = Stage::new(3).await;
    stage.dead(3).await;
    stage.client.batch_execute(FILL).await.unwrap();
    let overview = stage.get("/v1/overview?since=15m").await;
    let of = |endpoint, field| sum(&overview, endpoint, field);
    assert_eq!(
        (
            of("shop", "attempts"),
            of("shop", "failed"),
            of("shop", "dead")
        ),
        (3, 3, 3)
    );
    assert_eq!(
        (
            of("late", "attempts"),
            of("late", "failed"),
            of("late", "dead")
        ),
        (0, 0, 1)
    );
    // No more than is said are read of a piece, and it is said of how much of it they are. The pile may lie in two.
    let read = of("pile", "attempts");
    assert!((500..=900).contains(&read), "{read}");
    assert!(of("pile", "failed") >= 49, "{overview}");
    let partly = overview["partly"].as_array().unwrap();
    assert_eq!(partly.is_empty(), read == 900, "{overview}");
    for piece in partly {
        let covered = piece["covered"].as_f64().unwrap();
        assert!(covered > 0.0 && covered <= 15.0, "{piece}");
    }
    assert_eq!(overview["step"], 15.0);
    assert!(overview["backlog"].is_array());

    let found = stage.get("/v1/failures").await;
    assert_eq!((&found["groups"], &found["read"]), (&json!(3), &json!(94)));
    let pile = &found["failures"][0];
    assert_eq!(
        (
            &pile["endpoint"],
            &pile["count"],
            &pile["dead"],
            &pile["error"]
        ),
        (
            &json!("pile"),
            &json!(90),
            &json!(0),
            &json!("HTTP 503 Service Unavailable: order #, trace …")
        )
    );
    let whole = pile["whole"].as_str().unwrap();
    assert!(whole.contains("order 900"), "the last one: {whole}");
    let shop = stage.get("/v1/failures?endpoint=shop&since=1h").await;
    assert_eq!(
        (&shop["groups"], &shop["failures"][0]["dead"]),
        (&json!(1), &json!(3))
    );
    let none = stage.get("/v1/failures?endpoint=nobody").await;
    assert_eq!(none["failures"], json!([]));

    for (token, who) in [
        (OPERATOR, json!({ "name": "ann", "role": "operator" })),
        (READER, json!({ "name": "bob", "role": "reader" })),
    ] {
        let me = stage.ask(Method::GET, "/v1/me", token, "").await;
        assert_eq!(me, (StatusCode::OK, who));
    }
    for path in ["/v1/overview", "/v1/failures"] {
        let wrong = format!("{path}?since=yesteryear");
        let (status, _) = stage.ask(Method::GET, &wrong, READER, "").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let (status, _) = stage.ask(Method::GET, path, "0123456789abcdef", "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
}
