//! What a route changes for the messages of its topics.
use std::time::Duration;

use outbox_relay::{lab::receiver::Reply, retry, route::Routes};
use rustix::process::Signal;

use crate::support::{
    binary::Directory,
    eventually,
    relay::{routes, start},
    rows::{SOON, all_settled, assert_nothing_left, count, insert, one},
    scene::Scene,
};

/// One endpoint, two topics: how often each is tried is the affair of its route.
#[tokio::test]
async fn a_route_can_try_again_in_a_way_of_its_own() {
    let scene = Scene::new(|_| Reply::status(503)).await;
    insert(&scene.client, "once", 5).await;
    insert(&scene.client, "often", 5).await;
    let mut relay = scene.relay();
    let endpoint = &mut relay.endpoints[0].retry;
    endpoint.max_attempts = 3;
    let once = retry::Policy {
        max_attempts: 1,
        ..endpoint.clone()
    };
    let mut list: Vec<_> = routes(&[("once", "shop"), ("often", "shop")])
        .iter()
        .cloned()
        .collect();
    list[0].to[0].retry = Some(once);
    relay.routes = Routes::new(list);
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    let summary = relay.stop().await;
    assert_eq!((summary.dead, summary.retried), (10, 10));
    assert_eq!(scene.receiver.count(), 5 + 15);
    let dead =
        "select string_agg(distinct format('%s %s %s', topic, attempts, reason), ', ' order by 
                format('%s %s %s', topic, attempts, reason)) from outbox.dead_letters";
    let dead: String = one(&scene.client, dead).await;
    assert_eq!(dead, "often 3 attempts, once 1 attempts");
    assert_nothing_left(&scene.client).await;
}

/// A `Retry-After` closes the endpoint by the endpoint's own cap, whatever cap the route has.
#[tokio::test]
async fn the_cap_of_a_route_does_not_shorten_what_the_receiver_asked_for() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(503).header("retry-after", "2"),
        _ => Reply::status(200),
    })
    .await;
    let backoff = |cap| retry::Backoff::Full {
        base: Duration::from_millis(10),
        factor: 2.0,
        cap,
    };
    let mut relay = scene.relay();
    let endpoint = &mut relay.endpoints[0].retry;
    endpoint.backoff = backoff(Duration::from_secs(60));
    let hasty = retry::Policy {
        backoff: backoff(Duration::from_millis(10)),
        ..endpoint.clone()
    };
    let mut list: Vec<_> = relay.routes.iter().cloned().collect();
    list[0].to[0].retry = Some(hasty);
    relay.routes = Routes::new(list);
    insert(&scene.client, "t", 1).await;
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    let requests = scene.receiver.requests();
    assert_eq!(requests.len(), 2);
    let waited = requests[1].at.duration_since(requests[0].at);
    assert!(waited >= Duration::from_millis(1900), "{waited:?}");
}

/// Every look finds them again, and those who write go on writing.
#[tokio::test]
async fn rows_that_nobody_can_take_are_told_of_once() {
    const NO_ROUTE: &str = "no route for this topic";
    const NO_ENDPOINT: &str = "there is no such endpoint any more";
    let scene = Scene::new(|_| Reply::status(200)).await;
    let directory = Directory::new();
    let text = format!(
        "[relay]\nlease = \"2s\"\npoll = \"20ms\"\n[[endpoints]]\nname = \"shop\"\nurl = \"{}\"\n\
         [[routes]]\ntopic = \"order.*\"\nto = [\"shop\"]\n",
        scene.receiver.url("/")
    );
    let config = directory.write("relay.toml", &text);
    // As fan-out leaves it where its endpoint is taken out of the configuration.
    let gone =
        "insert into outbox.messages (topic, endpoint, payload) values ('order.paid', 'gone', '1')";
    scene.client.batch_execute(gone).await.unwrap();
    insert(&scene.client, "user.created", 3).await;
    let mut relay = directory.run(&config, &scene.database.url, "relay");
    let told = |what: &str, topic: &str| {
        let topic = format!("\"{topic}\"");
        let lines = relay.log();
        let lines = lines.lines();
        lines
            .filter(|line| line.contains(what) && line.contains(&topic))
            .count()
    };
    eventually("both are told of", SOON, async || {
        told(NO_ROUTE, "user.created") == 1 && told(NO_ENDPOINT, "order.paid") == 1
    })
    .await;
    // Each of these topics is found by a look of its own, which finds the old ones as well.
    for number in 1..=5 {
        let topic = format!("user.late{number}");
        scene.client.batch_execute(gone).await.unwrap();
        insert(&scene.client, "user.created", 1).await;
        insert(&scene.client, "order.paid", 1).await;
        insert(&scene.client, &topic, 1).await;
        eventually("the new one is told of", SOON, async || {
            told(NO_ROUTE, &topic) == 1
        })
        .await;
    }
    scene.receiver.wait_for(5, SOON).await.unwrap();
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    let log = relay.log();
    assert_eq!(log.matches(NO_ROUTE).count(), 6, "{log}");
    assert_eq!(log.matches(NO_ENDPOINT).count(), 1, "{log}");
    assert_eq!(count(&scene.client, "messages").await, 6 + 8 + 5);
}
