//! Somebody is told of what is wrong: once, whatever the replicas, at least once, whatever dies, and when it is right again.
use std::time::Duration;

use outbox_relay::store::{Store, Told, Watch};
use tokio_postgres::Client;

use crate::support::{
    database,
    rows::{count, one},
};

mod notices;

const KINDS: [&str; 6] = [
    "dead_letters",
    "failures",
    "no_route",
    "oldest_due",
    "paused",
    "sagas",
];

/// All kinds, without any patience.
fn eager() -> Watch {
    Watch {
        every: Duration::ZERO,
        repeat: Duration::from_secs(3600),
        window: Duration::from_secs(300),
        failures: Some((0.5, 4)),
        dead_letters: Some(2),
        oldest_due: Some(Duration::from_secs(60)),
        paused: Some(Duration::from_secs(60)),
        no_route: Some(Duration::from_secs(60)),
        sagas: Some(2),
        webhook: true,
        topic: None,
    }
}

/// So many attempts at an endpoint, just now.
async fn attempts(client: &Client, endpoint: &str, settlement: &str, many: i32) {
    let insert = "insert into outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, outcome, settlement, relay)
                  select now(), '0', gen_random_uuid(), n, 0, 1, 't', $1, case $2 when 'delivered' then 'success' else 'unavailable' end, $2, 'r'
                    from generate_series(1, $3::int) n";
    client
        .execute(insert, &[&endpoint, &settlement, &many])
        .await
        .unwrap();
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap();
}

/// What a look says: state, kind and subject, sorted.
async fn look(store: &Store, watch: &Watch) -> Vec<(String, String, String)> {
    let told = store.watch(watch).await.unwrap();
    let mut all: Vec<_> = told
        .into_iter()
        .map(|told| (told.state, told.kind, told.subject))
        .collect();
    all.sort();
    all
}

/// Everything is wrong: one subject for each kind.
async fn break_everything(client: &Client) {
    run(
        client,
        "insert into outbox.sagas (name, key, status, failed_step, steps)
         select 'order', n::text, 'parked', case when n = 3 then 'ship' else 'charge' end,
                '[{\"name\": \"charge\", \"to\": \"e\", \"do\": \"/\"}]' from generate_series(1, 3) n;
         insert into outbox.sagas (name, key, created_at) values ('refund', '1', now() - interval '20 min'), ('soon', '1', now());
         insert into outbox.endpoints (endpoint, paused_at, paused_by, pause_reason) values
             ('failing', null, null, null), ('dying', null, null, null), ('slow', null, null, null),
             ('paused', now() - interval '2 hours', 'ann', 'their release');
         insert into outbox.lanes (topic, leads_to) values ('slow', '{slow}'), ('resting', '{paused}');
         insert into outbox.messages (topic, created_at) values ('slow', now() - interval '20 minutes'),
             ('resting', now() - interval '20 minutes'), ('nowhere', now() - interval '20 minutes');
         insert into outbox.relays (name, version, config_digest, lease_time, unrouted_topics, unrouted_endpoints)
         values ('r', '1', 'd', '1 hour', '{nowhere}', '{\"\"}');
         insert into outbox.dead_letters (id, lane_endpoint, died_at, created_at, seq, attempts, lost, throttled, generation, size, topic, endpoint, reason)
         select gen_random_uuid(), '', now(), now(), n, 1, 0, 0, 0, 0, 't', 'dying', case n when 1 then 'rejected' else 'attempts' end
           from generate_series(1, 3) n",
    )
    .await;
    attempts(client, "failing", "retry", 3).await;
    attempts(client, "failing", "delivered", 2).await;
    attempts(client, "good", "delivered", 50).await;
    attempts(client, "good", "retry", 10).await;
    attempts(client, "new", "retry", 3).await;
}

#[tokio::test]
async fn each_kind_fires_and_recovers() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    assert_eq!(look(&store, &eager()).await, [], "nothing is wrong");
    break_everything(&client).await;
    let told = store.watch(&eager()).await.unwrap();
    let mut said: Vec<(&str, &str, &str, &str)> = told
        .iter()
        .map(|told| {
            assert_eq!(told.state, "firing");
            let Told {
                kind,
                subject,
                summary,
                command,
                ..
            } = told;
            (&**kind, &**subject, &**summary, &**command)
        })
        .collect();
    said.sort();
    let slow: String = one(
        &client,
        "select id::text from outbox.messages where topic = 'slow'",
    )
    .await;
    let due = format!("endpoint slow: a message has been due for 20 min ({slow}, topic slow)");
    let why = format!("outbox-relay why {slow}");
    let want = [
        (
            "dead_letters",
            "dying",
            "endpoint dying: 3 messages were given up in the last 5 min (2 attempts, 1 rejected)",
            "outbox-relay list dead --endpoint dying",
        ),
        (
            "failures",
            "failing",
            "endpoint failing: 60 % of the attempts in the last 5 min failed (3 failures, 2 successes)",
            "outbox-relay history --failures --endpoint failing",
        ),
        (
            "no_route",
            "nowhere",
            "topic nowhere: no relay can deliver its messages, the first has waited for 20 min",
            "outbox-relay status",
        ),
        (
            "no_route",
            "saga refund",
            "saga refund: no relay has a plan of this name, the first has waited for 20 min",
            "outbox-relay saga list --status new --name refund",
        ),
        ("oldest_due", "slow", &due, &why),
        (
            "paused",
            "paused",
            "endpoint paused: paused for 2 h by ann: their release",
            "outbox-relay resume paused",
        ),
        (
            "sagas",
            "order",
            "saga order: 3 parked and wait for an operator (2 at charge, 1 at ship)",
            "outbox-relay saga list --status parked --name order",
        ),
    ];
    assert_eq!(said, want);
    assert_eq!(look(&store, &eager()).await, [], "all of it is known");
    let alerts = store.alerts().await.unwrap();
    assert_eq!(alerts.len(), 7);
    assert!(alerts.iter().all(|alert| alert.looked_seconds.is_some()));
    assert_eq!(count(&client, "notices").await, 7);
    run(
        &client,
        "delete from outbox.attempts; delete from outbox.dead_letters; delete from outbox.messages;
         delete from outbox.sagas; update outbox.endpoints set paused_at = null",
    )
    .await;
    let recovered = look(&store, &eager()).await;
    let mut kinds: Vec<&str> = recovered.iter().map(|(_, kind, _)| &**kind).collect();
    kinds.dedup();
    assert_eq!(kinds, KINDS);
    assert!(recovered.iter().all(|(state, ..)| state == "recovered"));
    assert_eq!(count(&client, "alerts").await, 0);
}

#[tokio::test]
async fn a_kind_that_is_off_is_not_looked_for() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    break_everything(&client).await;
    let on = |kind: &str| Watch {
        failures: eager().failures.filter(|_| kind == "failures"),
        dead_letters: eager().dead_letters.filter(|_| kind == "dead_letters"),
        oldest_due: eager().oldest_due.filter(|_| kind == "oldest_due"),
        paused: eager().paused.filter(|_| kind == "paused"),
        no_route: eager().no_route.filter(|_| kind == "no_route"),
        sagas: eager().sagas.filter(|_| kind == "sagas"),
        ..eager()
    };
    for kind in KINDS {
        let told = look(&store, &on(kind)).await;
        let mut firing: Vec<&str> = told
            .iter()
            .filter(|(state, ..)| state == "firing")
            .map(|(_, kind, _)| &**kind)
            .collect();
        firing.dedup();
        assert_eq!(firing, [kind]);
    }
}

#[tokio::test]
async fn one_that_comes_and_goes_is_one_alert_and_is_told_again_after_a_while() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    let watch = Watch {
        every: Duration::from_secs(3600),
        ..eager()
    };
    let look = async || {
        run(&client, "update outbox.watching set watched_at = null").await;
        look(&store, &watch).await
    };
    let told = |state: &str| vec![(state.to_owned(), "paused".to_owned(), "e".to_owned())];
    let pause = "insert into outbox.endpoints (endpoint, paused_at, paused_by) values ('e', now() - interval '2 min', 'ann')
                 on conflict (endpoint) do update set paused_at = excluded.paused_at";
    let resume = "update outbox.endpoints set paused_at = null";
    run(&client, pause).await;
    assert_eq!(look().await, told("firing"));
    for _ in 0..3 {
        run(&client, resume).await;
        assert_eq!(look().await, [], "it may come back");
        run(&client, pause).await;
        assert_eq!(look().await, [], "as it does");
    }
    run(
        &client,
        "update outbox.alerts set notified_at = notified_at - interval '1 hour'",
    )
    .await;
    assert_eq!(look().await, told("reminder"));
    assert_eq!(look().await, []);
    run(&client, resume).await;
    assert_eq!(look().await, []);
    run(
        &client,
        "update outbox.alerts set clear_since = clear_since - interval '2 hours'",
    )
    .await;
    assert_eq!(look().await, told("recovered"));
    assert_eq!(look().await, []);
}

#[tokio::test]
async fn while_somebody_looks_or_did_just_now_nobody_else_does() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    break_everything(&client).await;
    let watch = Watch {
        every: Duration::from_secs(3600),
        ..eager()
    };
    let other = database.connect().await;
    run(&other, "begin; select from outbox.watching for update").await;
    assert_eq!(
        look(&store, &watch).await,
        [],
        "and nobody waits for the lock"
    );
    run(&other, "rollback").await;
    assert_eq!(look(&store, &watch).await.len(), 7);
    run(&client, "delete from outbox.alerts").await;
    assert_eq!(look(&store, &watch).await, []);
    run(
        &client,
        "update outbox.watching set watched_at = now() + interval '1 day'",
    )
    .await;
    assert_eq!(
        look(&store, &watch).await.len(),
        7,
        "a clock that was set back does not stop it"
    );
}

#[tokio::test]
async fn a_thousand_topics_without_a_route_are_a_hundred_alerts() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    run(
        &client,
        "insert into outbox.messages (topic, created_at) select 'n' || n, now() - interval '1 hour' from generate_series(1, 1000) n;
         insert into outbox.relays (name, version, config_digest, lease_time, unrouted_topics, unrouted_endpoints)
         select 'r', '1', 'd', '1 hour', array_agg('n' || n), array_agg(''::text) from generate_series(1, 1000) n",
    )
    .await;
    assert_eq!(look(&store, &eager()).await.len(), 100);
    assert_eq!(look(&store, &eager()).await, []);
}

#[tokio::test]
async fn the_relays_role_is_enough_and_what_nobody_sends_goes() {
    let database = database().await;
    let client = database.connect().await;
    break_everything(&client).await;
    let old = "insert into outbox.notices (created_at, not_before, kind, subject, content) values (now() - interval '3 days', now(), 'paused', 'gone', '{}')";
    run(&client, old).await;
    run(
        &client,
        "set role outbox_relay; begin isolation level read committed;
         select outbox.watch(0, 60, 300, 0.5, 4, 2, 60, 60, 60, 2, true, 'outbox.alert'); commit; reset role",
    )
    .await;
    let left = (
        count(&client, "notices").await,
        count(&client, "notices where subject = 'gone'").await,
        count(&client, "messages where topic = 'outbox.alert'").await,
    );
    assert_eq!(left, (7, 0, 7));
}

#[tokio::test]
async fn a_webhook_that_comes_later_hears_of_what_is_wrong_already() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    break_everything(&client).await;
    let mut watch = Watch {
        webhook: false,
        every: Duration::from_secs(3600),
        ..eager()
    };
    let look = async |watch: &Watch| {
        run(&client, "update outbox.watching set watched_at = null").await;
        look(&store, watch).await.len()
    };
    assert_eq!(look(&watch).await, 7);
    assert_eq!(count(&client, "notices").await, 0);
    watch.webhook = true;
    assert_eq!(look(&watch).await, 7);
    assert_eq!(count(&client, "notices").await, 7);
    assert_eq!(look(&watch).await, 0, "once");
}

#[tokio::test]
async fn what_has_been_due_for_ever_is_due_since_it_came() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    run(
        &client,
        "insert into outbox.lanes (topic, leads_to) values ('t', '{e}');
         insert into outbox.messages (topic, due_at, created_at) values ('t', '-infinity', now() - interval '1 day'), ('u', 'infinity', now())",
    )
    .await;
    let due = ("firing".into(), "oldest_due".into(), "e".into());
    assert!(look(&store, &eager()).await.contains(&due));
    let status = serde_json::to_value(store.status().await.unwrap()).unwrap();
    let [lane, never] = &status["lanes"].as_array().unwrap()[..] else {
        panic!("two lanes: {status}");
    };
    let due_in = lane["due_in"].as_f64().unwrap();
    assert!((-86_500.0..=-86_400.0).contains(&due_in), "{due_in}");
    assert_eq!(never["due_in"], serde_json::Value::Null);
}

#[tokio::test]
async fn what_is_put_off_hides_no_failures() {
    let database = database().await;
    let (client, store) = (database.connect().await, database.store());
    attempts(&client, "quiet", "retry", 90).await;
    attempts(&client, "noisy", "put_off", 10_001).await;
    let failing = ("firing".into(), "failures".into(), "quiet".into());
    assert!(look(&store, &eager()).await.contains(&failing));
}
