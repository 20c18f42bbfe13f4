//! What a route changes for the messages of its topics.
use std::time::Duration;

use outbox_relay::{lab::receiver::Reply, retry, route::Routes};

use crate::support::{
    relay::{routes, start},
    rows::{SOON, all_settled, assert_nothing_left, insert, one},
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
