//! What a relay answers over HTTP, to those who start, restart and route by it.

use std::time::Duration;

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    store::Waiting,
};
use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::outbox::{ENDPOINT, LANE, Outbox};
use crate::support::{
    self,
    asked::Asked,
    binary::{Directory, outbox_relay},
    database, eventually,
    proxy::Proxy,
    rows::{SOON, all_settled, insert, insert_one},
};

#[tokio::test]
async fn it_is_ready_while_it_can_deliver_and_live_all_the_time() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let server: reqwest::Url = database.url.parse().unwrap();
    let proxy = Proxy::start(server.port().unwrap()).await;
    let url = proxy.url(&database.url);
    let relay = Asked::start(&receiver, &url, "").await;
    relay.becomes("/startupz", StatusCode::OK).await;
    let checks = relay.becomes("/readyz", StatusCode::OK).await;
    let all = json!({"running": "ok", "registered": "ok", "database": "ok", "lease": "ok", "claims": "ok", "due": "ok"});
    assert_eq!(checks, all);
    for how in ["refused", "silent"] {
        match how {
            "refused" => proxy.close(true),
            _ => proxy.hole(true),
        }
        let checks = relay
            .becomes("/readyz", StatusCode::SERVICE_UNAVAILABLE)
            .await;
        assert!(
            checks["database"] != "ok" || checks["lease"] != "ok",
            "{how}: {checks}"
        );
        assert_eq!(
            relay.ask("/livez").await,
            (StatusCode::OK, json!({"loop": "ok"}))
        );
        assert_eq!(relay.ask("/startupz").await.0, StatusCode::OK);
        proxy.close(false);
        proxy.hole(false);
        // A call whose bytes were swallowed is given up after half a minute.
        eventually("it is ready again", Duration::from_secs(60), async || {
            relay.ask("/readyz").await.0 == StatusCode::OK
        })
        .await;
    }
    let client = database.connect().await;
    insert(&client, "t", 1).await;
    all_settled(&client, Duration::from_secs(60)).await;
}

#[tokio::test]
async fn one_that_was_told_to_stop_is_not_ready_and_lives_until_its_requests_have_ended() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200).after(Duration::from_secs(2))).unwrap();
    let mut relay = Asked::start(&receiver, &database.url, "").await;
    let client = database.connect().await;
    insert(&client, "t", 1).await;
    eventually("the request is on its way", SOON, async || {
        receiver.count() == 1
    })
    .await;
    relay.process.signal(Signal::TERM);
    let checks = relay
        .becomes("/readyz", StatusCode::SERVICE_UNAVAILABLE)
        .await;
    assert_eq!(checks["running"], "it was told to stop");
    assert_eq!(relay.ask("/livez").await.0, StatusCode::OK);
    assert!(relay.process.end(SOON).await.success());
    all_settled(&client, SOON).await;
}

#[tokio::test]
async fn a_message_that_stays_due_for_too_long_is_told_unless_its_endpoint_is_to_blame() {
    let database = database().await;
    let client = database.connect().await;
    // All four slots and what is prefetched hang.
    let receiver = Receiver::start(|_| Reply::status(200).after(Duration::from_secs(600))).unwrap();
    let relay = Asked::start(&receiver, &database.url, "max_due_age = \"1s\"").await;
    relay.becomes("/readyz", StatusCode::OK).await;
    insert_one(&client, "payload", "'1'").await;
    let checks = relay
        .becomes("/readyz", StatusCode::SERVICE_UNAVAILABLE)
        .await;
    let says = checks["due"].as_str().unwrap();
    assert!(
        says.starts_with("a message of topic t has been due for "),
        "{says}"
    );
    let pause = ["pause", "shop", "--why", "it hangs"];
    assert!(outbox_relay(&database.url, &pause).await.status.success());
    relay.becomes("/readyz", StatusCode::OK).await;
}

/// Everything else that the relay asks the database is answered meanwhile.
#[tokio::test]
async fn claims_that_always_fail_make_it_unready_and_the_reason_is_said() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = Asked::start(&receiver, &database.url, "").await;
    relay.becomes("/readyz", StatusCode::OK).await;
    let client = database.connect().await;
    let rename = async |from: &str, to: &str| {
        let all = format!(
            "do $$ begin execute (select string_agg(format('alter function %s rename to {to}', oid::regprocedure), ';')
                                    from pg_proc where proname = '{from}' and pronamespace = 'outbox'::regnamespace); end $$"
        );
        client.batch_execute(&all).await.unwrap();
    };
    rename("claim", "gone").await;
    insert_one(&client, "payload", "'1'").await;
    let checks = relay
        .becomes("/readyz", StatusCode::SERVICE_UNAVAILABLE)
        .await;
    let says = checks["claims"].as_str().unwrap();
    assert!(
        says.starts_with("each has failed for ") && says.contains("function outbox.claim("),
        "{checks}"
    );
    assert_eq!(checks["database"], "ok");
    // It stays so, for as long as it is so.
    for _ in 0..50 {
        assert_eq!(
            relay.ask("/readyz").await.1["claims"].as_str().unwrap()[..20],
            says[..20]
        );
    }
    assert_eq!(relay.ask("/livez").await.0, StatusCode::OK);
    rename("gone", "claim").await;
    relay.becomes("/readyz", StatusCode::OK).await;
    all_settled(&client, SOON).await;
}

#[tokio::test]
async fn a_lane_that_somebody_keeps_locked_is_told_until_it_is_free() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = Asked::start(&receiver, &database.url, "").await;
    let mut client = database.connect().await;
    insert(&client, "t", 1).await;
    all_settled(&client, SOON).await;
    let other = database.connect().await;
    let locked = client.transaction().await.unwrap();
    let lane = "select from outbox.lanes where topic = 't' for update";
    assert_eq!(locked.execute(lane, &[]).await.unwrap(), 1);
    insert(&other, "t", 1).await;
    let long = Duration::from_secs(120);
    let mut says = String::new();
    eventually("it is said", long, async || {
        let (status, checks) = relay.ask("/readyz").await;
        says = checks["claims"].as_str().unwrap().to_owned();
        status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let text = "somebody has locked the row of topic t or of its endpoint for 6";
    assert!(says.starts_with(text), "{says}");
    locked.rollback().await.unwrap();
    relay.becomes("/readyz", StatusCode::OK).await;
    all_settled(&other, SOON).await;
}

/// What others keep waiting, and what waits for its turn, is nothing that a relay could do.
#[tokio::test]
async fn the_oldest_is_one_that_nothing_but_a_relay_keeps_waiting() {
    let outbox = Outbox::new().await;
    outbox
        .run(
            "insert into outbox.messages (topic, key, created_at, due_at, attempts) values
             ('t', 'held', now() - interval '9 min', null, 0),
             ('t', 'failing', now() - interval '8 min', now() + interval '1 min', 1),
             ('t', 'failing', now() - interval '7 min', null, 0),
             ('t', 'good', now() - interval '6 min', null, 0),
             ('t', null, now() - interval '90 min', now() - interval '5 min', 1),
             ('t', null, now() - interval '80 min', now() + interval '5 min', 1);
             insert into outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq) values ('t', '', 'held', 'e', gen_random_uuid(), 0)",
        )
        .await;
    let oldest = async |in_order| {
        let waiting = Waiting {
            lane: LANE.clone(),
            leads_to: ENDPOINT.into(),
            in_order,
        };
        let found = outbox.store.oldest_due(&[waiting]).await.unwrap();
        found.map(|(lane, age)| {
            assert_eq!(lane, *LANE);
            age.as_secs() / 60
        })
    };
    assert_eq!(oldest(true).await, Some(6));
    assert_eq!(oldest(false).await, Some(9));
    outbox
        .run("delete from outbox.messages where key = 'good'")
        .await;
    assert_eq!(oldest(true).await, Some(5));
    for closed in [
        "paused_at = now()",
        "not_before = now() + interval '1 min'",
        "breaker = 'open'",
        "breaker = 'half_open'",
    ] {
        outbox
            .run(&format!("update outbox.endpoints set {closed}"))
            .await;
        assert_eq!(oldest(true).await, None, "{closed}");
        outbox
            .run("update outbox.endpoints set paused_at = null, not_before = null, breaker = 'closed'")
            .await;
    }
    assert_eq!(oldest(true).await, Some(5));
    outbox
        .run("delete from outbox.messages where due_at < now()")
        .await;
    assert_eq!(oldest(true).await, None);
}

#[tokio::test]
async fn guests_that_say_nothing_keep_nobody_out() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let relay = Asked::start(&receiver, &database.url, "").await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut guest = TcpStream::connect(&relay.address).await.unwrap();
        guest.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        silent.push(guest);
    }
    assert_eq!(relay.ask("/livez").await.0, StatusCode::OK);
    let client = database.connect().await;
    insert(&client, "t", 5).await;
    all_settled(&client, SOON).await;
    // The first ones had to make room.
    let mut rest = Vec::new();
    drop(silent[0].read_to_end(&mut rest).await);
    let unknown = support::client().get(format!("http://{}/nothing", relay.address));
    assert_eq!(
        unknown.send().await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_and_nothing_starts() {
    let database = database().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = taken.local_addr().unwrap();
    let directory = Directory::new();
    let more = format!("[http]\nlisten = \"{address}\"");
    let config = directory.config(&receiver.url("/"), &more);
    let mut process = directory.run(&config, &database.url, "relay");
    assert_eq!(process.end(SOON).await.code(), Some(1));
    let says = format!("http.listen {address}: Address already in use");
    assert!(process.log().contains(&says), "{}", process.log());
}
