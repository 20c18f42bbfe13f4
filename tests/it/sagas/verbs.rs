//! What operators do to sagas, and what deadlines do.
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_relay::lab::receiver::Reply;
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use super::{PLAN, asked, begin, ended, header, relay, scene};
use crate::support::{
    eventually,
    rows::{SOON, assert_nothing_left, count, one},
    scene::Scene,
};

/// A scene whose charge fails for good while the switch is on.
async fn failing(status: u16) -> (Scene, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let switch = fails.clone();
    let scene = scene(move |path, _| match path {
        "/charge" if switch.load(Ordering::SeqCst) => Reply::status(status),
        "/reserve" => Reply::status(200).body("1"),
        _ => Reply::status(200),
    })
    .await;
    (scene, fails)
}

/// What a function answers, or what it refuses with: SQLSTATE and message.
async fn call(client: &Client, text: &str) -> Result<String, (String, String)> {
    let row = client
        .query_one(&format!("select ({text})::text"), &[])
        .await;
    row.map(|row| row.get(0)).map_err(|error| {
        let error = error.as_db_error().unwrap().clone();
        (error.code().code().to_owned(), error.message().to_owned())
    })
}

async fn events(client: &Client, saga: Uuid) -> Vec<String> {
    let query = format!("select trail::text from outbox.sagas where id = '{saga}'");
    let trail: Value = serde_json::from_str(&one::<String>(client, &query).await).unwrap();
    let event = |line: &Value| {
        format!(
            "{} {}",
            line["step"].as_str().unwrap(),
            line["event"].as_str().unwrap()
        )
    };
    trail.as_array().unwrap().iter().map(event).collect()
}

fn paths(list: &[&str]) -> Vec<String> {
    list.iter().map(|path| format!("/hook/{path}")).collect()
}

#[tokio::test]
async fn a_parked_saga_goes_on_under_the_same_key_or_another_one() {
    for new_key in [false, true] {
        let (scene, fails) = failing(503).await;
        let client = &scene.client;
        let saga = begin(client, "o-1", PLAN).await;
        let relay = relay(&scene, 1);
        assert_eq!(ended(client, saga).await, "parked");
        fails.store(false, Ordering::SeqCst);
        let resume = format!("outbox.resume_saga('{saga}', {new_key}, 'mended', 'ann')");
        assert_eq!(call(client, &resume).await.unwrap(), "running");
        assert_eq!(ended(client, saga).await, "succeeded");
        relay.stop().await;
        assert_nothing_left(client).await;
        assert_eq!(
            asked(&scene),
            paths(&["reserve", "charge", "charge", "ship"])
        );
        let requests = scene.receiver.requests();
        let key = |n: usize| header(&requests[n], "idempotency-key").to_owned();
        assert_eq!(key(1) == key(2), !new_key);
        assert_eq!(
            header(&requests[2], "saga-attempt"),
            "1",
            "its attempts are given back"
        );
        let again = call(client, &resume).await.unwrap_err();
        assert_eq!(
            again,
            (
                "55000".into(),
                format!("saga {saga} is not parked: it is succeeded")
            )
        );
        let told = count(
            client,
            "attempts where settlement = 'replayed' and reason = 'mended' and relay = 'ann'",
        )
        .await;
        assert_eq!(told, 1);
        assert_eq!(count(client, "dead_letters").await, 0);
    }
}

#[tokio::test]
async fn a_step_that_is_skipped_leaves_no_output_and_is_undone_if_nobody_knows() {
    let (scene, _fails) = failing(503).await;
    let client = &scene.client;
    let plan = PLAN.replace(r#""/ship", "pivot": true"#, r#""/ship""#);
    let saga = begin(client, "o-1", &plan).await;
    let relay = relay(&scene, 1);
    assert_eq!(ended(client, saga).await, "parked");
    let skip = format!("outbox.skip_step('{saga}', 'paid by hand', 'ann')");
    assert_eq!(call(client, &skip).await.unwrap(), "running");
    assert_eq!(ended(client, saga).await, "succeeded");
    let ship: Value = serde_json::from_slice(&scene.receiver.requests()[2].body).unwrap();
    assert_eq!(ship["outputs"], json!({"reserve": 1}));
    // Run again from the last step and cancelled there: of the charge nobody knows.
    let pause = "outbox.pause('shop', 'a test', 'ann')";
    call(client, pause).await.unwrap();
    let rerun = format!("outbox.rerun_saga('{saga}', 'ship', null, 'again', 'ann')");
    assert_eq!(call(client, &rerun).await.unwrap(), "1");
    let cancel = format!("outbox.cancel_saga('{saga}', 'too late', 'ann')");
    assert_eq!(call(client, &cancel).await.unwrap(), "compensating");
    client
        .execute("select outbox.resume('shop')", &[])
        .await
        .unwrap();
    assert_eq!(ended(client, saga).await, "compensated");
    relay.stop().await;
    assert_eq!(
        asked(&scene),
        paths(&["reserve", "charge", "ship", "refund", "release"])
    );
    let requests = scene.receiver.requests();
    assert_eq!(header(&requests[3], "saga-forward-outcome"), "unknown");
    assert_eq!(header(&requests[4], "saga-forward-outcome"), "done");
    // It was run again from a later step: what is undone was done before that.
    for request in &requests[3..5] {
        assert_eq!(header(request, "saga-generation"), "0");
    }
    assert_eq!(
        events(client, saga).await,
        [
            "reserve done",
            "charge unknown",
            "charge skip",
            "ship done",
            "ship rerun",
            "ship back_unsent",
            "charge done",
            "reserve done"
        ]
    );
    let error: String = one(client, "select error from outbox.sagas").await;
    assert_eq!(error, "cancelled by ann: too late");
    assert_nothing_left(client).await;
}

#[tokio::test]
async fn a_saga_runs_again_from_a_step_with_another_input() {
    let (scene, fails) = failing(422).await;
    let client = &scene.client;
    let plan = r#"[{"name": "reserve", "to": "shop", "do": "/reserve"}, {"name": "charge", "to": "shop", "do": "/charge"}]"#;
    let saga = begin(client, "o-1", plan).await;
    let relay = relay(&scene, 3);
    // A pipeline: nothing can be undone, so a definite no waits for an operator.
    assert_eq!(ended(client, saga).await, "parked");
    fails.store(false, Ordering::SeqCst);
    for (text, code, want) in [
        (
            format!("outbox.rerun_saga('{saga}', 'ship')"),
            "22023",
            "has no step ship",
        ),
        (
            format!("outbox.rerun_saga('{}')", Uuid::nil()),
            "P0002",
            "there is no saga",
        ),
    ] {
        let (state, message) = call(client, &text).await.unwrap_err();
        assert!(state == code && message.contains(want), "{state} {message}");
    }
    let rerun = format!(
        "outbox.rerun_saga('{saga}', 'charge', '{{\"total\": 9}}', 'a wrong total', 'ann')"
    );
    assert_eq!(call(client, &rerun).await.unwrap(), "1");
    assert_eq!(ended(client, saga).await, "succeeded");
    relay.stop().await;
    assert_eq!(asked(&scene), paths(&["reserve", "charge", "charge"]));
    let requests = scene.receiver.requests();
    let body: Value = serde_json::from_slice(&requests[2].body).unwrap();
    assert_eq!(
        body,
        json!({"input": {"total": 9}, "outputs": {"reserve": 1}})
    );
    let keys: HashSet<_> = requests
        .iter()
        .map(|request| header(request, "idempotency-key").to_owned())
        .collect();
    assert_eq!(keys.len(), 3);
    assert_eq!(
        events(client, saga).await,
        [
            "reserve done",
            "charge refused",
            "charge rerun",
            "charge done"
        ]
    );
    assert_nothing_left(client).await;
}

#[tokio::test]
async fn a_cancel_waits_for_what_is_in_flight() {
    let scene = scene(|path, _| match path {
        "/charge" => Reply::status(200).after(Duration::from_millis(600)),
        _ => Reply::status(200),
    })
    .await;
    let client = &scene.client;
    let saga = begin(client, "o-1", PLAN).await;
    let relay = relay(&scene, 3);
    scene.receiver.wait_for(2, SOON).await.unwrap();
    let cancel = format!("outbox.cancel_saga('{saga}')");
    assert_eq!(call(client, &cancel).await.unwrap(), "running");
    assert_eq!(ended(client, saga).await, "compensated");
    relay.stop().await;
    assert_eq!(
        asked(&scene),
        paths(&["reserve", "charge", "refund", "release"])
    );
    assert_eq!(scene.receiver.most_in_flight(), 1, "no undo beside its do");
    let forward = scene.receiver.requests()[2].clone();
    assert_eq!(header(&forward, "saga-forward-outcome"), "done");
    let (state, message) = call(client, &cancel).await.unwrap_err();
    assert!(
        state == "55000" && message.contains("it is compensated"),
        "{message}"
    );
    assert_nothing_left(client).await;
}

#[tokio::test]
async fn a_deadline_turns_back_what_waits_and_nothing_past_its_pivot() {
    let scene = scene(|path, _| match path {
        // Busy for longer than the deadline.
        "/charge" => Reply::status(503).header("retry-after", "3600"),
        _ => Reply::status(200),
    })
    .await;
    let client = &scene.client;
    let start = format!(
        "insert into outbox.sagas (name, key, steps, deadline_at) values ('order', 'o-1', $${PLAN}$$, now() + interval '3 s') returning id"
    );
    let saga: Uuid = one(client, &start).await;
    let relay = relay(&scene, 50);
    assert_eq!(ended(client, saga).await, "compensated");
    let requests = scene.receiver.requests();
    assert!(!header(&requests[0], "saga-deadline").is_empty());
    let last = requests.last().unwrap();
    assert_eq!(
        (&*last.path, header(last, "saga-forward-outcome")),
        ("/hook/release", "done")
    );
    let error: String = one(client, "select error from outbox.sagas").await;
    assert_eq!(error, "its deadline is over");
    let before = start
        .replace("o-1", "o-2")
        .replace("interval '3 s'", "interval '-1 s'");
    let saga: Uuid = one(client, &before).await;
    assert_eq!(ended(client, saga).await, "compensated");
    assert!(events(client, saga).await.is_empty(), "it never began");

    // The pivot first: what is behind it goes on.
    let plan = r#"[{"name": "a", "to": "shop", "do": "/a", "undo": "/b", "pivot": true}, {"name": "charge", "to": "shop", "do": "/charge"}]"#;
    client
        .execute("update outbox.endpoints set not_before = null", &[])
        .await
        .unwrap();
    let saga = begin(client, "o-3", plan).await;
    eventually("it is past its pivot", SOON, async || {
        let query = format!("select at_step = 1 from outbox.sagas where id = '{saga}'");
        one::<bool>(client, &query).await
    })
    .await;
    let late = format!("update outbox.sagas set deadline_at = now() where id = '{saga}'");
    client.execute(&late, &[]).await.unwrap();
    eventually("it is too late to go back", SOON, async || {
        let query = format!("select wanted is not distinct from 'too_late' and status = 'running' from outbox.sagas where id = '{saga}'");
        one::<bool>(client, &query).await
    })
    .await;
    let (state, message) = call(client, &format!("outbox.cancel_saga('{saga}')"))
        .await
        .unwrap_err();
    assert!(
        state == "55000" && message.contains("past its pivot"),
        "{message}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_failed_undo_parks_and_steps_are_no_messages_to_the_other_verbs() {
    let scene = scene(|path, number| match (path, number) {
        ("/ship", _) | ("/refund", 1) => Reply::status(422),
        _ => Reply::status(200),
    })
    .await;
    let client = &scene.client;
    let saga = begin(client, "o-1", PLAN).await;
    let relay = relay(&scene, 3);
    assert_eq!(ended(client, saga).await, "parked");
    let message: Uuid = one(client, "select id from outbox.dead_letters").await;
    for verb in ["replay", "discard"] {
        let (state, said) = call(client, &format!("outbox.{verb}('{message}')"))
            .await
            .unwrap_err();
        assert!(
            state == "55000" && said.contains("is a step of a saga"),
            "{verb}: {said}"
        );
    }
    assert_eq!(
        call(client, "select count(*) from outbox.matching()")
            .await
            .unwrap(),
        "0"
    );
    for verb in ["replay", "discard"] {
        let job: i64 = one(client, &format!("select outbox.start_job('{verb}')")).await;
        let done = format!("select state || done from outbox.run_job({job})");
        assert_eq!(call(client, &done).await.unwrap(), "done0", "{verb}");
    }
    let (state, said) = call(client, &format!("outbox.cancel_saga('{saga}')"))
        .await
        .unwrap_err();
    assert!(
        state == "55000" && said.contains("parked on its way back"),
        "{said}"
    );
    let resume = format!("outbox.resume_saga('{saga}')");
    assert_eq!(call(client, &resume).await.unwrap(), "compensating");
    assert_eq!(ended(client, saga).await, "compensated");
    relay.stop().await;
    assert_eq!(
        asked(&scene),
        paths(&["reserve", "charge", "ship", "refund", "refund", "release"])
    );

    let life: Value = serde_json::from_str(
        &call(client, &format!("outbox.show_saga('{saga}')"))
            .await
            .unwrap(),
    )
    .unwrap();
    let attempts: Vec<_> = life["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| {
            format!(
                "{} {} {}",
                a["step"].as_str().unwrap(),
                a["phase"].as_str().unwrap(),
                a["settlement"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        attempts,
        [
            "reserve do delivered",
            "charge do delivered",
            "ship do undo",
            "charge undo dead",
            "charge undo replayed",
            "charge undo delivered",
            "reserve undo delivered"
        ]
    );
    let found = "select count(*) from outbox.find_sagas(p_status => 'compensated', p_error => 'UNPROCESSABLE', p_step => 'charge')";
    assert_eq!(call(client, found).await.unwrap(), "1");
    assert_nothing_left(client).await;
}

#[tokio::test]
async fn what_another_key_or_generation_may_have_done_is_undone_too() {
    // The charge fails in a way that nobody knows of, then works, then is refused.
    let phase = Arc::new(Mutex::new(503));
    let answer = phase.clone();
    let scene = scene(move |path, _| match path {
        "/charge" => Reply::status(*answer.lock().unwrap()),
        _ => Reply::status(200),
    })
    .await;
    let client = &scene.client;
    let saga = begin(client, "o-1", PLAN).await;
    let relay = relay(&scene, 1);
    assert_eq!(ended(client, saga).await, "parked");
    *phase.lock().unwrap() = 422;
    let resume = format!("outbox.resume_saga('{saga}', true)");
    assert_eq!(call(client, &resume).await.unwrap(), "running");
    assert_eq!(ended(client, saga).await, "compensated");
    let first = ["reserve", "charge", "charge", "refund", "release"];
    assert_eq!(asked(&scene), paths(&first));
    let refund = scene.receiver.requests()[3].clone();
    assert_eq!(header(&refund, "saga-forward-outcome"), "unknown");

    *phase.lock().unwrap() = 200;
    let plan = PLAN.replace(r#", "pivot": true"#, "");
    let saga = begin(client, "o-2", &plan).await;
    assert_eq!(ended(client, saga).await, "succeeded");
    *phase.lock().unwrap() = 422;
    let rerun = format!("outbox.rerun_saga('{saga}', 'charge')");
    call(client, &rerun).await.unwrap();
    assert_eq!(ended(client, saga).await, "compensated");
    let second = ["reserve", "charge", "ship", "charge", "refund", "release"];
    assert_eq!(asked(&scene)[first.len()..], paths(&second));
    relay.stop().await;

    // One whose message somebody removed.
    let saga = begin(client, "o-3", PLAN).await;
    let tended: i32 = one(client, "select begun from outbox.tend_sagas('{}', 10)").await;
    assert_eq!(tended, 1);
    client
        .execute("delete from outbox.messages", &[])
        .await
        .unwrap();
    let cancel = format!("outbox.cancel_saga('{saga}')");
    assert_eq!(call(client, &cancel).await.unwrap(), "compensating");
}
