//! What an endpoint may be asked to bear, over all relays together.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    limit::{Breaker, Limits, Rate},
    relay::Relay,
    retry,
    store::Mandate,
};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::support::{
    Database,
    binary::Directory,
    database, eventually,
    relay::{Running, endpoint, relay, start},
    rows::one,
};

const SOON: Duration = Duration::from_secs(20);

struct Scene {
    database: Database,
    client: Client,
    receiver: Receiver,
}

impl Scene {
    async fn new(receiver: Receiver, rows: u32) -> Scene {
        let database = database().await;
        let client = database.connect().await;
        let insert = format!(
            "insert into outbox.messages (topic, payload) select 't', '{{}}' from generate_series(1, {rows})"
        );
        client.batch_execute(&insert).await.unwrap();
        Scene {
            database,
            client,
            receiver,
        }
    }

    fn relay(&self, limits: &Limits) -> Relay {
        let mut relay = relay(
            &self.database.url,
            endpoint("shop", &self.receiver.url("/")),
        );
        relay.endpoints[0].limits = limits.clone();
        relay
    }

    fn relays(&self, limits: &Limits) -> [Running; 2] {
        [start(self.relay(limits)), start(self.relay(limits))]
    }

    async fn count(&self, of: &str) -> i64 {
        self.client
            .query_one(&format!("select count(*) from {of}"), &[])
            .await
            .unwrap()
            .get(0)
    }

    async fn breaker(&self) -> String {
        // There is no row before the first relay has registered.
        let row = self
            .client
            .query_opt("select breaker from outbox.endpoints", &[])
            .await
            .unwrap();
        row.map(|row| row.get(0)).unwrap_or_default()
    }
}

fn limits() -> Limits {
    Limits {
        max_in_flight: None,
        rate: None,
        breaker: None,
    }
}

#[tokio::test]
async fn in_flight_is_limited_over_all_relays() {
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(20))).unwrap();
    let scene = Scene::new(receiver, 200).await;
    let limits = Limits {
        max_in_flight: Some(3),
        ..limits()
    };
    let relays = scene.relays(&limits);
    scene.receiver.wait_for(200, SOON).await.unwrap();
    assert!(
        scene.receiver.most_in_flight() <= 3,
        "{}",
        scene.receiver.most_in_flight()
    );
    assert!(
        scene.receiver.most_in_flight() >= 2,
        "{}",
        scene.receiver.most_in_flight()
    );
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!(scene.receiver.count(), 200);
}

#[tokio::test]
async fn the_rate_is_limited_over_all_relays_and_waiting_uses_no_attempt() {
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let scene = Scene::new(receiver, 100).await;
    let rate = Some(Rate {
        per_second: 20.0,
        burst: 20.0,
    });
    let relays = scene.relays(&Limits { rate, ..limits() });
    scene.receiver.wait_for(100, SOON).await.unwrap();
    for relay in relays {
        relay.stop().await;
    }
    let requests = scene.receiver.requests();
    let (first, last) = (requests[0].at, requests[99].at);
    // A full bucket, then twenty a second: the other eighty take four seconds.
    let seconds = last.duration_since(first).as_secs_f64();
    assert!(seconds >= 3.5, "100 requests within {seconds} s");
    let more_than_one = "outbox.attempts where attempt > 1";
    assert_eq!(scene.count(more_than_one).await, 0);
}

/// The bucket is full ten times a second: one relay must not leave it so.
#[tokio::test]
async fn a_small_burst_does_not_lower_the_rate() {
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let scene = Scene::new(receiver, 110).await;
    let rate = Some(Rate {
        per_second: 100.0,
        burst: 10.0,
    });
    let relay = start(scene.relay(&Limits { rate, ..limits() }));
    scene.receiver.wait_for(110, SOON).await.unwrap();
    relay.stop().await;
    let requests = scene.receiver.requests();
    let seconds = requests[109].at.duration_since(requests[0].at);
    // One second, if the machine is not busy with other tests; with ten requests in each second it would be ten.
    let range = 0.9..6.0;
    assert!(range.contains(&seconds.as_secs_f64()), "{seconds:?}");
}

#[tokio::test]
async fn relays_that_were_idle_send_no_more_at_once_than_the_burst() {
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let scene = Scene::new(receiver, 3).await;
    let (per_second, burst) = (20.0, 20.0);
    let rate = Some(Rate { per_second, burst });
    let limits = Limits { rate, ..limits() };
    let relays = [(); 3].map(|()| start(scene.relay(&limits)));
    scene.receiver.wait_for(3, SOON).await.unwrap();
    eventually(
        "nobody takes tokens, and the bucket is full",
        SOON,
        async || {
            let full = "outbox.endpoints where tokens_at < clock_timestamp() - interval '1500 ms'";
            scene.count(full).await == 1
        },
    )
    .await;
    let inserted = Instant::now();
    let insert = "insert into outbox.messages (topic, payload) select 't', '{}' from generate_series(1, 100)";
    scene.client.batch_execute(insert).await.unwrap();
    scene.receiver.wait_for(103, SOON).await.unwrap();
    for relay in relays {
        relay.stop().await;
    }
    let mut sent = 0.0;
    for request in &scene.receiver.requests()[3..] {
        sent += 1.0;
        let seconds = request.at.duration_since(inserted).as_secs_f64();
        assert!(
            sent <= burst + per_second * seconds,
            "{sent} requests within {seconds} s"
        );
    }
}

#[tokio::test]
async fn a_retry_after_holds_for_all_relays_and_uses_no_attempt() {
    let receiver = Receiver::start(|request| match request.number {
        1 => Reply::status(429).header("retry-after", "2"),
        _ => Reply::status(200),
    })
    .unwrap();
    let scene = Scene::new(receiver, 1).await;
    let mut patient = scene.relay(&limits());
    let seconds = |n| Duration::from_secs(n);
    patient.endpoints[0].retry.backoff = retry::Backoff::Full {
        base: seconds(1),
        factor: 2.0,
        cap: seconds(60),
    };
    let other = patient.endpoints.clone();
    let first = start(patient);
    scene.receiver.wait_for(1, SOON).await.unwrap();
    eventually("the endpoint is closed for all", SOON, async || {
        scene
            .count("outbox.endpoints where not_before > now()")
            .await
            == 1
    })
    .await;
    let mut second = scene.relay(&limits());
    second.endpoints = other;
    let second = start(second);
    let insert =
        "insert into outbox.messages (topic, payload) select 't', '{}' from generate_series(1, 20)";
    scene.client.batch_execute(insert).await.unwrap();
    scene.receiver.wait_for(22, SOON).await.unwrap();
    let requests = scene.receiver.requests();
    let waited = requests[1].at.duration_since(requests[0].at).as_secs_f64();
    assert!(waited >= 1.9, "{waited} s");
    first.stop().await;
    second.stop().await;
    let told: (String, i32) = {
        let row = scene
            .client
            .query_one(
                "select settlement, attempt from outbox.attempts where status = 429",
                &[],
            )
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!(told, ("put_off".into(), 1));
    assert_eq!(scene.count("outbox.delivered where attempts > 1").await, 0);
}

/// A receiver that answers 503 while it is down.
fn patient() -> (Receiver, Arc<AtomicBool>) {
    let up = Arc::new(AtomicBool::new(false));
    let seen = up.clone();
    let receiver = Receiver::start(move |_| match seen.load(Ordering::Relaxed) {
        true => Reply::status(200),
        false => Reply::status(503),
    })
    .unwrap();
    (receiver, up)
}

fn breaker() -> Limits {
    let breaker = Breaker {
        minimum: 10,
        pause: Duration::from_millis(500),
        cap: Duration::from_secs(2),
        ramp: Duration::from_millis(200),
        ..Breaker::default()
    };
    Limits {
        breaker: Some(breaker),
        ..limits()
    }
}

#[tokio::test]
async fn a_dead_endpoint_burns_few_attempts_and_recovers_by_itself() {
    let (receiver, up) = patient();
    let scene = Scene::new(receiver, 2000).await;
    let relays = scene.relays(&breaker());
    eventually("the breaker opens", SOON, async || {
        scene.breaker().await == "open"
    })
    .await;
    eventually("it was probed, and opened again", SOON, async || {
        scene.count("outbox.endpoints where openings >= 3").await == 1
    })
    .await;
    // Two relays with 16 slots each, and a few probes: not thousands.
    assert!(scene.receiver.count() < 300, "{}", scene.receiver.count());
    up.store(true, Ordering::Relaxed);
    eventually("all is delivered", SOON, async || {
        scene.count("outbox.messages").await == 0
    })
    .await;
    assert_eq!(scene.breaker().await, "closed");
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!(scene.count("outbox.dead_letters").await, 0);
}

/// Each row comes again as soon as its delay is over: what that costs must go with the attempts, and they are few.
#[tokio::test]
async fn an_endpoint_that_always_fails_costs_few_transactions_and_little_cpu() {
    let scene = Scene::new(Receiver::start(|_| Reply::status(503)).unwrap(), 200).await;
    let directory = Directory::new();
    let config = directory.config(
        &scene.receiver.url("/"),
        "[defaults]\nbreaker = { enabled = false }",
    );
    let relay = directory.run(&config, &scene.database.url, "relay");
    let spent = async || {
        let transactions = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
        let transactions: i64 = one(&scene.client, transactions).await;
        (scene.receiver.count(), transactions, relay.cpu())
    };
    scene.receiver.wait_for(200, SOON).await.unwrap();
    let before = spent().await;
    scene.receiver.wait_for(2200, SOON * 2).await.unwrap();
    let after = spent().await;
    let attempts = i64::try_from(after.0 - before.0).unwrap();
    let transactions = after.1 - before.1;
    let cpu = after.2 - before.2;
    // A third of a transaction for each, and about a millisecond where nothing is optimised.
    assert!(
        transactions <= attempts,
        "{transactions} for {attempts} attempts"
    );
    let most = Duration::from_millis(10) * u32::try_from(attempts).unwrap();
    assert!(cpu <= most, "{cpu:?} for {attempts} attempts");
    assert_eq!(scene.count("outbox.messages").await, 200);
}

#[tokio::test]
async fn answers_of_a_receiver_that_lives_open_no_breaker() {
    let receiver = Receiver::start(|_| Reply::status(422)).unwrap();
    let scene = Scene::new(receiver, 200).await;
    let relays = scene.relays(&breaker());
    eventually("all are refused", SOON, async || {
        scene.count("outbox.dead_letters").await == 200
    })
    .await;
    assert_eq!(scene.breaker().await, "closed");
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test]
async fn resume_ends_the_pause_of_a_breaker() {
    let (receiver, up) = patient();
    let scene = Scene::new(receiver, 100).await;
    let mut limits = breaker();
    limits.breaker = limits.breaker.map(|breaker| Breaker {
        pause: Duration::from_secs(600),
        cap: Duration::from_secs(600),
        ..breaker
    });
    let relays = scene.relays(&limits);
    eventually("the breaker opens", SOON, async || {
        scene.breaker().await == "open"
    })
    .await;
    for relay in relays {
        relay.stop().await;
    }
    up.store(true, Ordering::Relaxed);
    assert_eq!(
        scene
            .database
            .store()
            .resume("shop", Mandate::default())
            .await
            .unwrap(),
        Some(true)
    );
    let relays = scene.relays(&limits);
    eventually("all is delivered", SOON, async || {
        scene.count("outbox.messages").await == 0
    })
    .await;
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_relay_without_a_breaker_is_not_bound_by_one() {
    let states = [
        "breaker = 'half_open'",
        "breaker = 'open', breaker_until = now() + interval '1 hour'",
        "breaker = 'closed', closed_at = now() + interval '1 hour'",
    ];
    for state in states {
        let slow = Duration::from_millis(300);
        let receiver = Receiver::start(move |_| Reply::status(200).after(slow)).unwrap();
        let scene = Scene::new(receiver, 48).await;
        let store = scene.database.store();
        store
            .add_endpoints(&[("shop", Duration::from_secs(10))])
            .await
            .unwrap();
        let set = format!("update outbox.endpoints set {state}");
        scene.client.batch_execute(&set).await.unwrap();
        let relay = start(scene.relay(&limits()));
        scene.receiver.wait_for(48, SOON).await.unwrap();
        relay.stop().await;
        // As many as it has slots, and not two probes.
        let most = scene.receiver.most_in_flight();
        assert!(most > 8, "{state}: {most} in flight");
    }
}

#[tokio::test]
async fn a_pending_message_can_be_cancelled_and_one_on_its_way_can_not() {
    let receiver =
        Receiver::start(|_| Reply::status(200).after(Duration::from_millis(500))).unwrap();
    let scene = Scene::new(receiver, 1).await;
    let store = scene.database.store();
    let later = "insert into outbox.messages (topic, due_at) values ('t', now() + interval '1 h') returning id";
    let id = scene.client.query_one(later, &[]).await.unwrap().get(0);
    let running = start(scene.relay(&limits()));
    scene.receiver.wait_for(1, SOON).await.unwrap();
    let sent = scene
        .client
        .query_one("select id from outbox.messages where due_at is null", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(
        store.cancel(sent, Mandate::default()).await.unwrap(),
        (0, 1)
    );
    assert_eq!(store.cancel(id, Mandate::default()).await.unwrap(), (1, 0));
    assert_eq!(store.cancel(id, Mandate::default()).await.unwrap(), (0, 0));
    running.stop().await;
    assert_eq!(scene.count("outbox.messages").await, 0);
    assert_eq!(scene.count("outbox.delivered").await, 1);
}
