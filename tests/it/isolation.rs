//! An endpoint, or a row, in trouble holds up no other.
use std::time::Duration;

use outbox_relay::{
    delivery::Endpoint,
    lab::receiver::{Receiver, Reply},
};

use crate::support::{
    database, eventually,
    relay::{endpoint, relay, routes, start},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, one},
    scene::Scene,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_hangs_holds_up_no_other_and_only_so_many_of_its_own_rows() {
    let database = database().await;
    let client = database.connect().await;
    let hangs = Receiver::start(|_| Reply::never()).unwrap();
    let works = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut relay = relay(&database.url, endpoint("hangs", &hangs.url("/")));
    relay.endpoints.push(endpoint("works", &works.url("/")));
    relay.routes = routes(&[("a.*", "hangs"), ("b.*", "works")]);
    relay.config.grace = Duration::ZERO;
    let relay = start(relay);
    insert(&client, "a.stuck", 500).await;
    hangs.wait_for(16, SOON).await.unwrap();
    for round in 1..=10 {
        insert(&client, "b.fine", 100).await;
        works.wait_for(round * 100, SOON).await.unwrap();
    }
    eventually("all of the other are settled", SOON, async || {
        count(&client, "messages").await == 500
    })
    .await;
    let held = "select sum(cardinality(ids))::bigint from outbox.leases";
    assert_eq!(
        one::<i64>(&client, held).await,
        64,
        "the slots and a prefetch"
    );
    assert_eq!((hangs.count(), works.count()), (16, 1_000));
    relay.stop().await;
    assert_eq!(count(&client, "messages").await, 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_all_endpoints_are_bounded_and_one_that_hangs_leaves_places_for_the_others() {
    let scene = Scene::new(|request| match &*request.path {
        "/hangs" => Reply::never(),
        _ => Reply::status(200).after(Duration::from_millis(20)),
    })
    .await;
    let at = |name: &str, concurrency| Endpoint {
        concurrency,
        ..endpoint(name, &scene.receiver.url(&format!("/{name}")))
    };
    let mut relay = relay(&scene.database.url, at("hangs", 4));
    relay.endpoints.extend([at("one", 16), at("two", 16)]);
    relay.routes = routes(&[("hangs", "hangs"), ("one", "one"), ("two", "two")]);
    relay.config.concurrency = 7;
    relay.config.grace = Duration::ZERO;
    let relay = start(relay);
    insert(&scene.client, "hangs", 50).await;
    scene.receiver.wait_for(4, SOON).await.unwrap();
    insert(&scene.client, "one", 100).await;
    insert(&scene.client, "two", 100).await;
    eventually("the others are settled", SOON, async || {
        count(&scene.client, "messages").await == 50
    })
    .await;
    assert_eq!(scene.receiver.most_in_flight(), 7);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_fail_again_and_again_do_not_starve_fresh_ones_nor_the_reverse() {
    let scene = Scene::new(|request| match &request.body[..] {
        b"\"bad\"" if request.number < 3_000 => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    let bad = "insert into outbox.messages (topic, payload) select 't', '\"bad\"' from generate_series(1, 500)";
    scene.client.batch_execute(bad).await.unwrap();
    let relay = scene.start();
    scene.receiver.wait_for(500, SOON).await.unwrap();
    let good = "insert into outbox.messages (topic, payload) select 't', '\"good\"' from generate_series(1, 500)";
    scene.client.batch_execute(good).await.unwrap();
    eventually(
        "the fresh ones are delivered beside them",
        SOON,
        async || count(&scene.client, "messages where payload::text = '\"good\"'").await == 0,
    )
    .await;
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn a_claim_never_holds_more_than_its_relay_can_start_soon() {
    let scene = Scene::new(|_| Reply::status(200).after(Duration::from_millis(5))).await;
    insert(&scene.client, "t", 2_000).await;
    let relay = scene.start();
    let held = "select coalesce(sum(cardinality(ids)), 0)::bigint from outbox.leases";
    let mut most = 0;
    eventually("all is settled", SOON, async || {
        most = one::<i64>(&scene.client, held).await.max(most);
        count(&scene.client, "messages").await == 0
    })
    .await;
    // What has finished and is not yet settled counts here, and no longer for the slots.
    // As many again can be on their way into the database, since that goes beside the next claim.
    assert!(most <= 128, "{most}");
    assert!(scene.receiver.most_in_flight() <= 16);
    relay.stop().await;
}
