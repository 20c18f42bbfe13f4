//! A relay is a quiet guest of the database that carries the business.
use std::time::Duration;

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    store::Mandate,
};
use rustix::process::Signal;

use crate::support::{
    binary::Directory,
    database, eventually,
    relay::{endpoint, relay, routes, start},
    rows::{SOON, all_settled, count, insert, mandate, one, transactions},
    scene::Scene,
};

const OURS: &str = "from pg_stat_activity where datname = current_database() and application_name = 'outbox-relay'";

#[tokio::test]
async fn a_relay_has_three_connections_and_two_for_the_doorbell_and_one_for_a_moment() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let config = directory.config(&receiver.url("/"), "");
    let mut relay = directory.run(&config, &database.url, "relay");
    insert(&client, "t", 2_000).await;
    let doorbell = "select count(*) from pg_stat_activity \
                    where datname = current_database() and application_name = 'outbox-relay doorbell'";
    let (mut most, mut most_for_the_doorbell) = (0, 0);
    eventually("all is settled", SOON, async || {
        most_for_the_doorbell = one::<i64>(&client, doorbell)
            .await
            .max(most_for_the_doorbell);
        most = one::<i64>(&client, &format!("select count(*) {OURS}"))
            .await
            .max(most);
        count(&client, "messages").await == 0
    })
    .await;
    // The fourth looks after the partitions, and goes.
    assert!((1..=4).contains(&most), "{most}");
    eventually("three are left", SOON, async || {
        one::<i64>(&client, &format!("select count(*) {OURS}")).await == 3
    })
    .await;
    assert!(most_for_the_doorbell <= 2, "{most_for_the_doorbell}");
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0));
}

#[tokio::test]
async fn no_transaction_is_open_while_a_request_is_on_its_way() {
    let scene = Scene::new(|_| Reply::status(200).after(Duration::from_secs(2))).await;
    insert(&scene.client, "t", 16).await;
    let relay = scene.start();
    scene.receiver.wait_for(16, SOON).await.unwrap();
    let open =
        format!("select count(*) {OURS} and xact_start < clock_timestamp() - interval '200 ms'");
    assert_eq!(one::<i64>(&scene.client, &open).await, 0);
    let alter = "set lock_timeout = '1s'; alter table outbox.messages add column of_the_shop text";
    scene.client.batch_execute(alter).await.unwrap();
    assert_eq!(scene.receiver.in_flight(), 16, "it was not in a pause");
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_with_nothing_to_do_asks_a_few_times_a_second_whatever_is_pending() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let lanes = "insert into outbox.messages (topic, payload, due_at) \
                 select t || '.' || n, '1', d from generate_series(1, 200) n, \
                 (values ('closed', null::timestamptz), ('nowhere', null), ('later', now() + interval '1 hour')) as v (t, d)";
    scene.client.batch_execute(lanes).await.unwrap();
    let store = scene.database.store();
    store
        .add_endpoints(&[("closed", Duration::from_secs(10))])
        .await
        .unwrap();
    store
        .pause("closed", mandate("a test", "me"))
        .await
        .unwrap();
    let mut quiet = relay(
        &scene.database.url,
        endpoint("shop", &scene.receiver.url("/")),
    );
    quiet
        .endpoints
        .push(endpoint("closed", &scene.receiver.url("/")));
    quiet.routes = routes(&[("closed.*", "closed"), ("later.*", "shop")]);
    // What a configuration has by default.
    quiet.config.poll = Duration::from_millis(200);
    quiet.config.lease = Duration::from_secs(15);
    let relay = start(quiet);
    eventually("it has looked at every lane", SOON, async || {
        count(&scene.client, "lanes").await == 400
    })
    .await;
    let made = transactions(&scene.client).await;
    assert!(made <= 12.0, "{made} in a second");

    assert_eq!(
        store.resume("closed", Mandate::default()).await.unwrap(),
        Some(true)
    );
    scene.receiver.wait_for(200, SOON).await.unwrap();
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 200);
    assert_eq!(count(&scene.client, "messages").await, 400);
}
