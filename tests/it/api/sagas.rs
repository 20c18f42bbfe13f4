//! Sagas over HTTP: lists, one, and what an operator does to one or many.
use super::*;

const PIPELINE: &str = r#"[{"name": "pick", "to": "shop", "do": "/pick"}, {"name": "pack", "to": "shop", "do": "/pack"}]"#;

/// Starts so many, and waits until each is parked at its first step.
async fn parked(stage: &Stage, sagas: i32) -> Vec<Uuid> {
    let start = "insert into outbox.sagas (name, key, input, steps)
                 select 'order', 'o-' || n, '{\"n\": 1.50}', $1::text::jsonb from generate_series(1, $2::int) n";
    stage
        .client
        .execute(start, &[&PIPELINE, &sagas])
        .await
        .unwrap();
    let parked =
        async || count(&stage.client, "sagas where status = 'parked'").await == i64::from(sagas);
    eventually("they are parked", SOON, parked).await;
    let ids = "select id from outbox.sagas order by created_at desc, id desc";
    let rows = stage.client.query(ids, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn sagas_are_listed_shown_and_resumed() {
    let stage = Stage::new(3).await;
    let ids = parked(&stage, 3).await;
    let page = stage.get("/v1/sagas?status=parked&limit=2").await;
    let listed: Vec<&str> = page["sagas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|saga| saga["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, [ids[0].to_string(), ids[1].to_string()]);
    assert_eq!(page["sagas"][0]["step"], "pick");
    let next = page["next"].as_str().unwrap().to_owned();
    let path = format!("/v1/sagas?status=parked&limit=2&after={}", encoded(&next));
    let rest = stage.get(&path).await;
    assert_eq!(rest["sagas"][0]["id"], ids[2].to_string());
    assert_eq!(rest["next"], Value::Null);
    let kinds = stage
        .get("/v1/sagas/matching?step=pick&error=UTRECHT")
        .await;
    assert_eq!(
        kinds,
        json!([{"name": "order", "status": "parked", "step": "pick", "phase": "do", "sagas": 3}])
    );
    let life = stage.get(&format!("/v1/sagas/{}", ids[0])).await;
    assert_eq!(life["input"], json!({"n": 1.5}));
    assert_eq!(life["trail"][0]["event"], "refused");
    assert_eq!(life["attempts"][0]["step"], "pick");
    assert_eq!(life["why"][0]["state"], "dead");

    let path = format!("/v1/sagas/{}", ids[0]);
    let done = stage
        .post(&format!("{path}/resume"), json!({"why": "mended"}))
        .await;
    assert_eq!(done, json!({"status": "running"}));
    let succeeded = async || stage.get(&path).await["status"] == "succeeded";
    eventually("it succeeded", SOON, succeeded).await;
    let by = stage.get(&path).await["trail"][1].clone();
    assert_eq!(
        (&by["event"], &by["by"], &by["why"]),
        (&json!("resume"), &json!("ann"), &json!("mended"))
    );

    let many = json!({"verb": "skip", "filter": {"status": "parked"}, "limit": 1});
    let acted = stage.post("/v1/sagas/act", many).await;
    assert_eq!(acted["done"], json!([ids[1]]));
    let rest =
        json!({"verb": "rerun", "filter": {"status": "parked"}, "step": "pack", "limit": 10});
    let acted = stage.post("/v1/sagas/act", rest).await;
    assert_eq!(acted["refused"][0]["id"], ids[2].to_string());
    let error = acted["refused"][0]["error"].as_str().unwrap();
    assert!(error.contains("has not reached step pack yet"), "{error}");
    assert_eq!((&acted["done"], &acted["next"]), (&json!([]), &Value::Null));
}

#[tokio::test]
async fn what_cannot_be_had_of_a_saga_is_a_problem() {
    let stage = Stage::new(1).await;
    let saga = parked(&stage, 1).await[0];
    let nobody = Uuid::nil();
    let (post, conflict) = (Method::POST, StatusCode::CONFLICT);
    stage
        .post(&format!("/v1/sagas/{saga}/cancel"), json!({"why": "no"}))
        .await;
    for (path, body, status, detail) in [
        (
            format!("/v1/sagas/{saga}/resume"),
            "",
            conflict,
            "is not parked: it is compensated",
        ),
        (
            format!("/v1/sagas/{saga}/skip"),
            "{}",
            conflict,
            "is not parked",
        ),
        (
            format!("/v1/sagas/{saga}/cancel"),
            "{}",
            conflict,
            "can't be cancelled: it is compensated",
        ),
        (
            format!("/v1/sagas/{saga}/rerun"),
            r#"{"step": "pack"}"#,
            conflict,
            "can be run again from its first step only",
        ),
        (
            format!("/v1/sagas/{saga}/rerun"),
            r#"{"step": "x"}"#,
            StatusCode::BAD_REQUEST,
            "has no step x",
        ),
        (
            format!("/v1/sagas/{nobody}/resume"),
            "",
            StatusCode::NOT_FOUND,
            "there is no saga",
        ),
        (
            "/v1/sagas/act".into(),
            r#"{"verb": "skip"}"#,
            StatusCode::BAD_REQUEST,
            "say which sagas",
        ),
        (
            "/v1/sagas/act".into(),
            r#"{"verb": "skip", "all": true, "new_key": true}"#,
            StatusCode::BAD_REQUEST,
            "new_key is of a resume",
        ),
        (
            "/v1/sagas/act".into(),
            r#"{"verb": "stop", "all": true}"#,
            StatusCode::BAD_REQUEST,
            "not \"stop\"",
        ),
    ] {
        stage.fails(post.clone(), &path, body, status, detail).await;
    }
    let get = Method::GET;
    let status = "/v1/sagas?status=lost";
    stage
        .fails(get.clone(), status, "", StatusCode::BAD_REQUEST, "not lost")
        .await;
    let path = format!("/v1/sagas/{nobody}");
    stage
        .fails(get, &path, "", StatusCode::NOT_FOUND, "there is no saga")
        .await;
    let (is, _) = stage
        .ask(
            Method::POST,
            "/v1/sagas/act",
            READER,
            r#"{"verb": "skip", "all": true}"#,
        )
        .await;
    assert_eq!(is, StatusCode::FORBIDDEN);
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Starts one as the writer, and returns the status, the body and the Location.
async fn start(stage: &Stage, key: Option<&str>, body: &str) -> send::Answered {
    let url = format!("http://{}/v1/sagas", stage.relay.address);
    let mut request = client().post(url).bearer_auth(WRITER).body(body.to_owned());
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    send::answered(request).await
}

#[tokio::test]
async fn a_saga_is_started_over_http_once() {
    let stage = Stage::new(0).await;
    let body = format!(
        r#"{{"name": "order", "key": "o-1", "input": {{"n": 1.50}}, "steps": {PIPELINE}, "deadline_in": "1h"}}"#
    );
    let (status, answer, place) = start(&stage, Some("r-1"), &body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let id = answer["id"].as_str().unwrap().to_owned();
    let place = place.unwrap();
    assert_eq!(place, format!("/v1/sagas/{id}"));
    let succeeded = async || stage.get(&place).await["status"] == "succeeded";
    eventually("it succeeded", SOON, succeeded).await;
    let life = stage.get(&place).await;
    assert!(life["deadline_at"].is_string(), "{life}");
    let first = stage.receiver.requests()[0].clone();
    assert!(String::from_utf8_lossy(&first.body).contains(r#"{"n": 1.50}"#));

    // Repeated, with the request's key or without; and what is something else.
    for key in [Some("r-1"), None, Some("r-2")] {
        let (status, again, _) = start(&stage, key, &body).await;
        assert_eq!(
            (status, &again["id"]),
            (StatusCode::ACCEPTED, &json!(id)),
            "{key:?}"
        );
    }
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let (status, answer, _) = start(&stage, None, &body.replace("1.50", "2")).await;
    assert_eq!(status, unprocessable, "another input: {answer}");
    let (status, answer, _) = start(&stage, Some("r-1"), &body.replace("o-1", "o-2")).await;
    assert_eq!(status, unprocessable, "another request: {answer}");
    assert_eq!(
        count(&stage.client, "sagas").await,
        1,
        "nothing of it stays"
    );
    // The request's key stands for one that is missing.
    let named = r#"{"name": "refund"}"#;
    let (status, _, _) = start(&stage, Some("r-3"), named).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let key: String = one(
        &stage.client,
        "select key from outbox.sagas where name = 'refund'",
    )
    .await;
    assert_eq!(key, "r-3");
    for (body, want) in [
        (named, "key: is missing"),
        (r#"{"name": "a b", "key": "k"}"#, "name: 1 to 64 letters"),
        (
            r#"{"name": "s", "key": "k", "steps": [{}]}"#,
            "steps[0].do: a path",
        ),
        (
            r#"{"name": "s", "key": "k", "deadline_in": "5"}"#,
            "deadline_in: a duration",
        ),
        (
            r#"{"name": "s", "key": "k", "headers": {"Saga-Id": "1"}}"#,
            "headers: a name that the relay or HTTP itself sets",
        ),
        (r#"{"name": "s", "key": "k", "plan": []}"#, "unknown field"),
    ] {
        let (status, problem, _) = start(&stage, None, body).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            status == StatusCode::BAD_REQUEST && detail.contains(want),
            "{body}: {status} {detail}"
        );
    }
    let (status, _) = stage.ask(Method::POST, "/v1/sagas", READER, named).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}
