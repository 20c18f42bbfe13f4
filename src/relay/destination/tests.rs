mod batches;

use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::{
    limit::{Limits, Rate},
    relay::{Config, Relay, Sagas},
    store::{self, Records},
};

fn endpoint(name: &str, path: &str) -> Endpoint {
    let url = format!("http://127.0.0.1:9/{path}");
    Endpoint {
        concurrency: 4,
        ..Endpoint::new(name, url.parse().unwrap())
    }
}

fn plan(endpoints: Vec<Endpoint>, before: Option<&Plan>) -> Plan {
    let relay = Relay {
        config: Config {
            name: "relay".into(),
            lease: Duration::from_secs(15),
            poll: Duration::from_millis(200),
            doorbell: true,
            idle: Duration::from_secs(5),
            batch: 200,
            concurrency: 8,
            memory: 1 << 20,
            grace: Duration::ZERO,
            max_due_age: None,
            max_lost: 5,
        },
        database: store::Config {
            url: String::new(),
            url_file: None,
            ca_file: None,
            lenient: false,
            guard: None,
        },
        digest: String::new(),
        endpoints,
        routes: Routes::default(),
        sagas: Sagas::default(),
        records: Records::ATTEMPTS,
        until_empty: false,
    };
    Plan::new(relay, before).unwrap()
}

/// Marks a destination as one that holds a message and has tokens and a gate of its own.
fn use_it(destinations: &mut Destinations, name: &str, until: Instant) {
    let destination = destinations.get_mut(name).unwrap();
    destination.held = 1;
    destination.close(until, false);
    destination
        .bearing
        .got_tokens(3, Duration::ZERO, Instant::now());
}

#[tokio::test]
async fn an_endpoint_that_is_as_it_was_is_not_touched() {
    let rate = Rate {
        per_second: 10.0,
        burst: 10.0,
    };
    let limits = Limits {
        rate: Some(rate),
        ..Limits::default()
    };
    let same = Endpoint {
        limits,
        ..endpoint("same", "")
    };
    let first = plan(vec![same.clone(), endpoint("other", "")], None);
    let mut destinations = Destinations::new(&first);
    let until = Instant::now() + Duration::from_secs(60);
    use_it(&mut destinations, "same", until);
    let (policy, retired) = {
        let before = destinations.get("same").unwrap();
        (before.endpoint.clone(), before.way.retired.clone())
    };

    let second = plan(vec![same, endpoint("other", "moved")], Some(&first));
    destinations.adopt(&second);
    let after = destinations.get("same").unwrap();
    assert!(Arc::ptr_eq(&policy, &after.endpoint) && !retired.is_cancelled());
    assert_eq!((after.held, *after.gate.borrow()), (1, until));
    assert_eq!(after.bearing.tokens(Instant::now()), Some(3));
}

#[tokio::test]
async fn one_that_changed_keeps_what_it_holds_and_gives_back_what_has_not_started() {
    let first = plan(vec![endpoint("shop", "")], None);
    let mut destinations = Destinations::new(&first);
    let until = Instant::now() + Duration::from_secs(60);
    use_it(&mut destinations, "shop", until);
    let retired = destinations.get("shop").unwrap().way.retired.clone();

    let second = plan(vec![endpoint("shop", "moved")], Some(&first));
    destinations.adopt(&second);
    let after = destinations.get("shop").unwrap();
    assert!(retired.is_cancelled() && !after.way.retired.is_cancelled());
    assert_eq!((after.held, *after.gate.borrow()), (1, until));
    assert_eq!(after.endpoint.url.path(), "/moved");
}

#[tokio::test]
async fn one_that_is_gone_is_parked_until_it_holds_nothing() {
    let both = vec![endpoint("stays", ""), endpoint("goes", "")];
    let first = plan(both.clone(), None);
    let mut destinations = Destinations::new(&first);
    use_it(&mut destinations, "goes", Instant::now());
    let second = plan(vec![endpoint("stays", "")], Some(&first));
    destinations.adopt(&second);
    assert!(destinations.get("goes").unwrap().way.retired.is_cancelled());
    assert_eq!(destinations.iter_mut().count(), 1, "it is not claimed for");

    // It comes back before that: what it holds still counts, and it takes new messages.
    destinations.adopt(&plan(both, Some(&second)));
    let back = destinations.get("goes").unwrap();
    assert_eq!((back.held, back.way.retired.is_cancelled()), (1, false));
    assert_eq!(destinations.iter_mut().count(), 2);

    destinations.adopt(&second);
    destinations.get_mut("goes").unwrap().held = 0;
    destinations.drop_empty();
    assert!(destinations.get("goes").is_none());
}

#[tokio::test]
async fn the_memory_is_shared_anew() {
    let first = plan(vec![endpoint("a", "")], None);
    let mut destinations = Destinations::new(&first);
    assert_eq!(destinations.get("a").unwrap().budget, 1 << 20);
    let second = plan(vec![endpoint("a", ""), endpoint("b", "")], Some(&first));
    destinations.adopt(&second);
    assert_eq!(destinations.get("a").unwrap().budget, 1 << 19);
}

#[tokio::test]
async fn slots_in_use_are_taken_away_as_they_are_given_back() {
    let mut tasks = JoinSet::new();
    let slots = Arc::new(Semaphore::new(4));
    let mut used: Vec<_> = (0..3).map(|_| slots.try_acquire().unwrap()).collect();
    resize(&slots, 4, 1, &mut tasks);
    assert_eq!(slots.available_permits(), 0);
    used.truncate(1);
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(slots.available_permits(), 0);
    used.clear();
    assert_eq!(slots.available_permits(), 1);
    resize(&slots, 1, 3, &mut tasks);
    assert_eq!(slots.available_permits(), 3);
}
