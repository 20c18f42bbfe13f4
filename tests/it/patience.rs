//! What can't be delivered now is kept and waited for, or given up by the rules and kept as a dead letter.
use std::time::Duration;

use outbox_relay::{lab::receiver::Reply, store::Mandate};
use tokio::time::Instant;

use crate::support::{
    eventually,
    relay::{routes, start, until_empty},
    rows::{
        SOON, all_settled, around_checks, assert_nothing_left, count, insert, insert_one, one,
        outcomes,
    },
    scene::Scene,
};

// === when it is given up ===

#[tokio::test]
async fn after_max_attempts_a_message_is_dead() {
    let scene = Scene::new(|_| Reply::status(500)).await;
    insert_one(&scene.client, "payload", "'1'").await;
    let mut relay = scene.relay();
    relay.endpoints[0].retry.max_attempts = 3;
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 3);
    assert_eq!(scene.dead().await, ("attempts".into(), Some(500), 3));
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn a_message_that_has_expired_is_dead_without_a_request() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    scene
        .deliver("payload, expires_at", "'1', now() - interval '1 ms'")
        .await;
    assert_eq!(scene.receiver.count(), 0);
    assert_eq!(scene.dead().await, ("expired".into(), None, 0));
    let told =
        "select format('%s %s %s %s', attempt, outcome, settlement, reason) from outbox.attempts";
    let told: String = one(&scene.client, told).await;
    assert_eq!(told, "0 expired dead expired");
}

#[tokio::test]
async fn a_message_that_expires_while_it_is_tried_is_dead_after_its_last_attempt() {
    let scene = Scene::new(|_| Reply::status(503)).await;
    scene
        .deliver("payload, expires_at", "'1', now() + interval '700 ms'")
        .await;
    let (reason, _, attempts) = scene.dead().await;
    assert_eq!(reason, "expired");
    assert_eq!(u64::try_from(attempts).unwrap(), scene.receiver.count());
    assert!(attempts >= 1);
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_kills_its_row_and_no_other() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let bad = insert_one(&scene.client, "payload", "'1'").await;
    let around = "update outbox.messages set headers = '{\"x\": \"a\\r\\nHost: evil\"}'";
    around_checks(&scene.client, around).await;
    let good = scene.deliver("payload", "'2'").await;
    assert_eq!(scene.receiver.count(), 1);
    assert_eq!(outcomes(&scene.client, good).await, ["success"]);
    assert_eq!(outcomes(&scene.client, bad).await, ["unsendable"]);
    assert_eq!(scene.dead().await.0, "rejected");
}

// === when it has to wait ===

#[tokio::test]
async fn a_message_is_not_sent_before_it_is_due_and_soon_after() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let relay = scene.start();
    let start = Instant::now();
    insert_one(
        &scene.client,
        "payload, due_at",
        "'1', clock_timestamp() + interval '1 s'",
    )
    .await;
    insert_one(
        &scene.client,
        "payload, due_at",
        "'2', clock_timestamp() + interval '1 hour'",
    )
    .await;
    scene.receiver.wait_for(1, SOON).await.unwrap();
    // The row was written a moment after `start`, so this can only be too strict for one that is early.
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    relay.stop().await;
    assert_eq!(scene.receiver.count(), 1);
    assert_eq!(count(&scene.client, "messages").await, 1);
}

#[tokio::test]
async fn an_endpoint_that_answers_410_is_paused_and_goes_on_after_a_resume() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(410),
        _ => Reply::status(200),
    })
    .await;
    let id = insert_one(&scene.client, "payload", "'1'").await;
    let relay = scene.start();
    eventually("the endpoint is paused", SOON, async || {
        count(
            &scene.client,
            "endpoints where paused_at is not null and pause_reason like '%410%'",
        )
        .await
            == 1
    })
    .await;
    for _ in 0..20 {
        insert_one(&scene.client, "payload", "'2'").await;
    }
    // Another relay asks the same database: what it may claim, this one may.
    let again = until_empty(scene.relay()).await;
    assert_eq!((again.delivered, scene.receiver.count()), (0, 1));
    assert_eq!(count(&scene.client, "messages").await, 21);

    assert_eq!(
        scene
            .database
            .store()
            .resume("shop", Mandate::default())
            .await
            .unwrap(),
        Some(true)
    );
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(outcomes(&scene.client, id).await, ["gone", "success"]);
    assert_eq!(scene.receiver.count(), 22);
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn a_topic_without_a_route_is_kept_until_a_relay_has_one() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    insert_one(&scene.client, "payload", "'1'").await;
    let mut without = scene.relay();
    without.routes = routes(&[("other.*", "shop")]);
    let without = start(without);
    let other = "insert into outbox.messages (topic, payload) values ('other.t', '2')";
    scene.client.batch_execute(other).await.unwrap();
    scene.receiver.wait_for(1, SOON).await.unwrap();
    eventually("the other topic is settled", SOON, async || {
        count(&scene.client, "messages").await == 1
    })
    .await;
    let with = scene.start();
    all_settled(&scene.client, SOON).await;
    without.stop().await;
    with.stop().await;
    assert_eq!(scene.receiver.count(), 2);
    assert_nothing_left(&scene.client).await;
}

// === when the database can't take something ===

#[tokio::test]
async fn history_that_cannot_be_written_does_not_stop_delivery() {
    let scene = Scene::new(|request| match request.number {
        1 => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    // As after a week without maintenance: there is no partition for today.
    let drop = "do $$ declare p text; begin \
                for p in select inhrelid::regclass::text from pg_inherits \
                where inhparent in ('outbox.attempts'::regclass, 'outbox.delivered'::regclass) \
                loop execute 'drop table ' || p; end loop; end $$";
    scene.client.batch_execute(drop).await.unwrap();
    scene.deliver("payload", "'1'").await;
    assert_eq!(scene.receiver.count(), 2);
    assert_eq!(count(&scene.client, "attempts").await, 0);

    scene.database.store().migrate(None, false).await.unwrap();
    let id = scene.deliver("payload", "'2'").await;
    assert_eq!(outcomes(&scene.client, id).await, ["success"]);
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_written_is_kept_and_holds_up_no_other_message() {
    for code in ["raise_exception", "insufficient_privilege", "OX001"] {
        let scene = Scene::new(|request| match &request.body[..] {
            b"1" => Reply::status(422),
            _ => Reply::status(200),
        })
        .await;
        let trap = format!(
            "create function trap() returns trigger language plpgsql as $$ begin raise exception 'not here' using errcode = '{code}'; end $$; \
             create trigger trap before insert on outbox.dead_letters for each row execute function trap()"
        );
        scene.client.batch_execute(&trap).await.unwrap();
        let bad = insert_one(&scene.client, "payload", "'1'").await;
        let relay = scene.start();
        scene.receiver.wait_for(1, SOON).await.unwrap();
        for _ in 0..50 {
            insert_one(&scene.client, "payload", "'2'").await;
        }
        eventually("the others are settled", SOON, async || {
            count(&scene.client, "messages").await == 1
        })
        .await;
        assert_eq!(
            count(&scene.client, &format!("messages where id = '{bad}'")).await,
            1
        );
        scene
            .client
            .batch_execute("drop function trap cascade")
            .await
            .unwrap();
        all_settled(&scene.client, SOON).await;
        relay.stop().await;
        assert_eq!(scene.dead().await, ("rejected".into(), Some(422), 1));
        assert_eq!(scene.receiver.count(), 51);
        assert_nothing_left(&scene.client).await;
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_settled_does_not_keep_those_in_the_same_settle() {
    // What comes first is in a settle that waits; meanwhile all the others are answered.
    let scene = Scene::new(|request| match &request.body[..] {
        b"\"bad\"" => Reply::status(422).after(Duration::from_millis(600)),
        b"\"early\"" => Reply::status(200).after(Duration::from_millis(300)),
        _ => Reply::status(200).after(Duration::from_millis(600)),
    })
    .await;
    // A sequence is not rolled back: it counts the removals of settles that failed, too.
    let trap = "create sequence public.removals; \
                create function public.counted() returns trigger language plpgsql as $$ \
                begin perform nextval('public.removals'); return old; end $$; \
                create trigger counted before delete on outbox.messages for each row execute function public.counted(); \
                create function public.trap() returns trigger language plpgsql as $$ begin raise exception 'not here'; end $$; \
                create trigger trap before insert on outbox.dead_letters for each row execute function public.trap()";
    scene.client.batch_execute(trap).await.unwrap();
    let rows = "insert into outbox.messages (topic, payload) \
                select 't', v::json from unnest(array['\"early\"', '\"bad\"'] || array_fill('\"late\"'::text, array[14])) v";
    scene.client.batch_execute(rows).await.unwrap();
    let relay = scene.start();
    scene.receiver.wait_for(16, SOON).await.unwrap();
    let lock = scene.database.connect().await;
    let all = "begin; select from outbox.messages for update";
    lock.batch_execute(all).await.unwrap();
    eventually("all are answered", SOON, async || {
        scene.receiver.in_flight() == 0
    })
    .await;
    lock.batch_execute("rollback").await.unwrap();
    eventually("the others are settled", SOON, async || {
        count(&scene.client, "messages").await == 1
    })
    .await;
    let removals: i64 = one(&scene.client, "select last_value from public.removals").await;
    assert!(
        removals > 15,
        "{removals}: the bad one was in no settle with others"
    );
    let left: String = one(&scene.client, "select payload::text from outbox.messages").await;
    assert_eq!(left, "\"bad\"");

    let end = "drop function public.trap cascade";
    scene.client.batch_execute(end).await.unwrap();
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(scene.dead().await, ("rejected".into(), Some(422), 1));
    assert_eq!(scene.receiver.count(), 16, "each once");
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn a_row_with_an_infinite_time_is_refused_or_stops_no_other_row() {
    for column in ["due_at", "expires_at", "created_at"] {
        for time in ["infinity", "-infinity"] {
            let scene = Scene::new(|_| Reply::status(200)).await;
            let row = format!(
                "insert into outbox.messages (topic, payload, {column}) values ('t', '1', '{time}')"
            );
            scene.client.batch_execute(&row).await.ok();
            let relay = scene.start();
            for _ in 0..5 {
                insert_one(&scene.client, "payload", "'2'").await;
            }
            scene.receiver.wait_for(5, SOON).await.unwrap();
            relay.stop().await;
        }
    }
}

#[tokio::test]
async fn a_timeout_counts_from_the_request_and_not_from_the_claim() {
    let scene = Scene::new(|_| Reply::status(200).after(Duration::from_millis(100))).await;
    let mut relay = scene.relay();
    relay.endpoints[0].concurrency = 1;
    relay.endpoints[0].timeout = Duration::from_secs(1);
    // Claimed together; the last one waits for two seconds.
    insert(&scene.client, "t", 20).await;
    let relay = start(relay);
    all_settled(&scene.client, SOON).await;
    relay.stop().await;
    assert_eq!(
        count(&scene.client, "attempts where outcome = 'success'").await,
        20
    );
    assert_eq!(scene.receiver.count(), 20);
    assert_nothing_left(&scene.client).await;
}
