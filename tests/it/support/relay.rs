//! A relay in this process: fast polls, short leases, retries that don't keep a test waiting.
use std::time::Duration;

use outbox_relay::{
    delivery::Endpoint,
    limit::Limits,
    relay::{self, Error, Relay, Sagas, Summary},
    retry,
    route::{Order, Pattern, Route, Routes},
    store::Records,
};
use tokio::{sync::oneshot, task::JoinSet};

use super::config;

/// Short, and yet long enough for a machine that is busy with other tests to beat in time.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// An endpoint at this URL.
pub(crate) fn endpoint(name: &str, url: &str) -> Endpoint {
    Endpoint {
        name: name.into(),
        url: url.parse().unwrap(),
        concurrency: 16,
        timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(3),
        retry: retry::Policy {
            backoff: retry::Backoff::Full {
                base: Duration::from_millis(50),
                factor: 2.0,
                cap: Duration::from_millis(200),
            },
            max_attempts: 100,
            max_age: Duration::from_secs(3600),
            ..retry::Policy::default()
        },
        limits: Limits {
            breaker: None,
            ..Limits::default()
        },
        ..Endpoint::new(name, url.parse().unwrap())
    }
}

/// A relay that sends every topic to one endpoint.
pub(crate) fn relay(database: &str, endpoint: Endpoint) -> Relay {
    let to = endpoint.name.clone();
    Relay {
        config: relay::Config {
            name: "relay".into(),
            lease: LEASE,
            poll: Duration::from_millis(20),
            doorbell: true,
            idle: Duration::from_secs(5),
            batch: 200,
            concurrency: 1024,
            memory: 64 << 20,
            grace: Duration::from_secs(10),
            max_due_age: None,
            max_lost: 5,
        },
        database: config(database),
        digest: "digest".into(),
        endpoints: vec![endpoint],
        routes: routes(&[("**", &to)]),
        sagas: Sagas::default(),
        records: Records::ALL,
        until_empty: false,
    }
}

/// Routes, each from a pattern to an endpoint.
pub(crate) fn routes(pairs: &[(&str, &str)]) -> Routes {
    let route = |&(topic, to): &(&str, &str)| Route {
        topic: Pattern::parse(topic).unwrap(),
        to: vec![to.into()],
        order: Order::None,
    };
    Routes::new(pairs.iter().map(route).collect())
}

/// A relay at work. Dropping it is its sudden end: nothing is given back.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinSet<Result<Summary, Error>>,
}

/// Starts a relay.
pub(crate) fn start(relay: Relay) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let mut task = JoinSet::new();
    task.spawn(relay::run(relay, async {
        stopped.await.ok();
    }));
    Running { stop, task }
}

impl Running {
    /// Tells it to drain and waits for its end.
    pub(crate) async fn stop(mut self) -> Summary {
        self.stop.send(()).ok();
        self.task.join_next().await.unwrap().unwrap().unwrap()
    }
}

/// Runs a relay until nothing is due.
pub(crate) async fn until_empty(mut relay: Relay) -> Summary {
    relay.until_empty = true;
    let run = relay::run(relay, std::future::pending());
    tokio::time::timeout(Duration::from_secs(30), run)
        .await
        .expect("it ends by itself")
        .unwrap()
}
