//! Messages whose time is over though nobody can deliver them: dead letters all the same.
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use outbox_relay::{
    lab::receiver::Reply,
    message::{Lane, Settlement},
    relay::Relay,
    route::{OnDead, Order, Routes},
    store::{Expiry, Mandate, Place},
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    outbox::{ENDPOINT, LANE, Outbox, take, take_in_order},
    support::{
        eventually,
        relay::{routes, start},
        rows::{SOON, all_settled, assert_nothing_left, count, insert, insert_one, mandate, one},
        scene::Scene,
    },
};

/// What the dead letters are, one a line, and what history says of them.
const DEAD: &str =
    "select coalesce(string_agg(format('%s %s %s', d.topic, nullif(d.endpoint, ''), d.reason), ', '
                        order by d.topic, d.seq), '') from outbox.dead_letters d";
const TOLD: &str =
    "select coalesce(string_agg(distinct format('%s %s %s', outcome, settlement, relay), ', '), '')
                        from outbox.attempts";

// === a relay finds them ===

#[tokio::test]
async fn what_expires_while_its_endpoint_is_paused_is_dead_and_the_rest_is_kept() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let store = scene.database.store();
    store
        .add_endpoints(&[("shop", Duration::from_secs(10))])
        .await
        .unwrap();
    store
        .pause("shop", mandate("a test", "nobody"))
        .await
        .unwrap();
    let relay = scene.start();
    insert(&scene.client, "t", 3).await;
    insert_one(&scene.client, "expires_at", "now() + interval '1 hour'").await;
    insert_one(&scene.client, "expires_at", "now() + interval '1 s'").await;
    insert_one(&scene.client, "expires_at", "'-infinity'").await;
    eventually("two are dead", SOON, async || {
        count(&scene.client, "dead_letters").await == 2
    })
    .await;
    let (dead, told): (String, String) = (
        one(&scene.client, DEAD).await,
        one(&scene.client, TOLD).await,
    );
    assert_eq!(
        (&*dead, &*told),
        ("t shop expired, t shop expired", "expired dead relay")
    );
    assert_eq!(count(&scene.client, "messages").await, 4);
    store.resume("shop", Mandate::default()).await.unwrap();
    all_settled(&scene.client, SOON).await;
    let summary = relay.stop().await;
    assert_eq!((summary.delivered, summary.dead), (4, 2));
    assert_eq!(scene.receiver.count(), 4);
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn what_expires_without_a_route_is_dead_and_names_no_endpoint() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let mut relay = scene.relay();
    relay.routes = routes(&[("other", "shop")]);
    insert_one(
        &scene.client,
        "key, expires_at",
        "'k', now() - interval '1 s'",
    )
    .await;
    insert_one(&scene.client, "payload", "'1'").await;
    let relay = start(relay);
    eventually("it is dead", SOON, async || {
        count(&scene.client, "dead_letters").await == 1
    })
    .await;
    relay.stop().await;
    assert_eq!(one::<String>(&scene.client, DEAD).await, "t  expired");
    assert_eq!(count(&scene.client, "held_keys").await, 0);
    assert_eq!(count(&scene.client, "messages").await, 1);
}

/// Three relays, and more rows than one look takes in; one of them can't be given up.
#[tokio::test]
async fn many_that_expired_are_given_up_once_though_one_can_not_be() {
    let scene = Scene::new(|_| Reply::status(200)).await;
    let store = scene.database.store();
    store
        .add_endpoints(&[("shop", Duration::from_secs(10))])
        .await
        .unwrap();
    store
        .pause("shop", mandate("a test", "nobody"))
        .await
        .unwrap();
    let rows = "insert into outbox.messages (topic, type, expires_at)
                select 't' || n % 20, case when n = 77 then 'bad' end, now() from generate_series(1, 1000) n;
                create function trap() returns trigger language plpgsql as $$ begin raise exception 'not here'; end $$;
                create trigger trap before insert on outbox.dead_letters for each row when (new.type = 'bad')
                execute function trap()";
    scene.client.batch_execute(rows).await.unwrap();
    let relays = [scene.start(), scene.start(), scene.start()];
    eventually("all but one are dead", SOON, async || {
        count(&scene.client, "dead_letters").await == 999
    })
    .await;
    assert_eq!(count(&scene.client, "messages where type = 'bad'").await, 1);
    scene
        .client
        .batch_execute("drop function trap cascade")
        .await
        .unwrap();
    all_settled(&scene.client, SOON).await;
    let mut dead = 0;
    for relay in relays {
        dead += relay.stop().await.dead;
    }
    assert_eq!((dead, count(&scene.client, "attempts").await), (1000, 1000));
    assert_nothing_left(&scene.client).await;
}

#[tokio::test]
async fn the_key_of_an_expired_head_is_held_or_goes_on_as_its_route_says() {
    for (on_dead, held) in [(OnDead::Hold, 1), (OnDead::Continue, 0)] {
        let scene = Scene::new(|_| Reply::status(200)).await;
        let mut relay = scene.relay();
        let mut list: Vec<_> = relay.routes.iter().cloned().collect();
        list[0].order = Order::Key(on_dead);
        relay.routes = Routes::new(list);
        let store = scene.database.store();
        store
            .add_endpoints(&[("shop", Duration::from_secs(10))])
            .await
            .unwrap();
        store
            .pause("shop", mandate("a test", "nobody"))
            .await
            .unwrap();
        insert_one(&scene.client, "key, expires_at", "'k', now()").await;
        insert_one(&scene.client, "key", "'k'").await;
        insert_one(&scene.client, "key", "'other'").await;
        let relay = start(relay);
        eventually("the head is dead", SOON, async || {
            count(&scene.client, "dead_letters").await == 1
        })
        .await;
        assert_eq!(
            count(&scene.client, "held_keys where key = 'k'").await,
            held
        );
        store.resume("shop", Mandate::default()).await.unwrap();
        eventually("what may go goes", SOON, async || {
            count(&scene.client, "messages").await == held
        })
        .await;
        relay.stop().await;
    }
}

/// A relay whose topics keep the order of their keys; a dead head holds its key.
fn ordered(scene: &Scene) -> Relay {
    let mut relay = scene.relay();
    let mut list: Vec<_> = relay.routes.iter().cloned().collect();
    list[0].order = Order::Key(OnDead::Hold);
    relay.routes = Routes::new(list);
    relay
}

#[tokio::test]
async fn what_expires_in_memory_behind_a_head_that_failed_waits_until_it_is_the_head() {
    let open = Arc::new(AtomicBool::new(false));
    let opened = open.clone();
    let scene = Scene::new(move |_| {
        if opened.load(Relaxed) {
            return Reply::status(200);
        }
        Reply::status(500).after(Duration::from_secs(1))
    })
    .await;
    let rows = "insert into outbox.messages (topic, key, expires_at) values ('t', 'k', null);
                insert into outbox.messages (topic, key, expires_at) values ('t', 'k', now() + interval '500 ms');
                insert into outbox.messages (topic, key, expires_at) values ('t', 'k', null)";
    scene
        .client
        .batch_execute(&format!("begin; {rows}; commit"))
        .await
        .unwrap();
    let relay = start(ordered(&scene));
    eventually("the head has failed", SOON, async || {
        count(&scene.client, "attempts where settlement = 'retry'").await > 0
    })
    .await;
    assert_eq!(count(&scene.client, "dead_letters").await, 0);
    assert_eq!(count(&scene.client, "held_keys").await, 0);
    open.store(true, Relaxed);
    eventually(
        "the head is delivered, and what expired dies",
        SOON,
        async || count(&scene.client, "messages").await == 1,
    )
    .await;
    relay.stop().await;
    let (dead, held, left): (i64, i64, i64) = (
        one(&scene.client, "select min(seq) from outbox.dead_letters").await,
        one(&scene.client, "select min(seq) from outbox.held_keys").await,
        one(&scene.client, "select min(seq) from outbox.messages").await,
    );
    assert_eq!((dead, held, left), (2, 2, 3));
    assert_eq!(count(&scene.client, "delivered where seq = 1").await, 1);
}

// === what may be given up ===

impl Outbox {
    /// Inserts a row that has expired; `values` are those of `(key, due_at, attempts)`.
    async fn expired(&self, values: &str) -> Uuid {
        let insert = format!(
            "insert into outbox.messages (topic, key, due_at, attempts, expires_at)
             select 't', v.key::text, v.due::timestamptz, v.attempts, now() - interval '1 s'
               from (values ({values})) v (key, due, attempts) returning id"
        );
        self.one(&insert, &[]).await
    }

    /// Gives up what it may of these, in the lane.
    async fn expire(&self, hold: bool, ids: &[Uuid]) -> Expiry {
        let store = &self.store;
        store
            .expire(Uuid::nil(), "a relay", &LANE, Some(ENDPOINT), hold, ids)
            .await
            .unwrap()
    }

    async fn pending(&self) -> BTreeSet<Uuid> {
        let ids = self.all("select id from outbox.messages", &[]).await;
        ids.into_iter().collect()
    }
}

#[tokio::test]
async fn a_leased_row_is_left_to_its_relay_and_nobody_waits_for_a_claim() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let leased = outbox.expired("null, null, 0").await;
    let lease = outbox.lease(&me, &take(1)).await;
    let free = outbox.expired("null, null, 0").await;
    let ids = [leased, free];
    let other = outbox.database.connect().await;
    other
        .batch_execute("begin; select from outbox.lanes for update")
        .await
        .unwrap();
    assert_eq!(
        outbox.expire(false, &ids).await.dead,
        0,
        "the lane is locked"
    );
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(outbox.expire(false, &ids).await.dead, 1);
    assert_eq!(outbox.pending().await, [leased].into());
    outbox.settle_all(&me, &lease, Settlement::Release).await;
    assert_eq!(outbox.expire(false, &ids).await.dead, 1);
    assert_eq!(outbox.expire(false, &ids).await.dead, 0, "sent again");
}

#[tokio::test]
async fn what_the_caller_saw_is_checked_again() {
    let outbox = Outbox::new().await;
    let id = outbox.insert("null, null").await;
    assert_eq!(
        outbox.expire(false, &[id]).await.dead,
        0,
        "it never expires"
    );
    outbox
        .run("update outbox.messages set expires_at = now() + interval '1 hour'")
        .await;
    assert_eq!(outbox.expire(false, &[id]).await.dead, 0, "not yet");
    outbox
        .run("update outbox.messages set expires_at = now(), topic = 'another'")
        .await;
    assert_eq!(outbox.expire(false, &[id]).await.dead, 0, "of another lane");
    outbox
        .run("update outbox.messages set topic = 't', endpoint = 'another'")
        .await;
    assert_eq!(outbox.expire(false, &[id]).await.dead, 0, "of another lane");
}

#[tokio::test]
async fn a_relay_without_a_route_leaves_what_expires_to_one_that_has_it() {
    let outbox = Outbox::new().await;
    let [me, other] = [outbox.relay().await, outbox.relay().await];
    let id = outbox.expired("'k', null, 0").await;
    let expire = async || {
        let (store, ids) = (&outbox.store, [id]);
        let expiry = store.expire(me.relay, "a relay", &LANE, None, false, &ids);
        expiry.await.unwrap().dead
    };
    assert_eq!(expire().await, 0, "the other one may have a route");
    let elsewhere = Lane {
        endpoint: "elsewhere".into(),
        ..LANE.clone()
    };
    let tell = async |lane: &Lane| {
        let lanes = [lane.clone()].into();
        outbox
            .store
            .set_unrouted(other.relay, &lanes)
            .await
            .unwrap();
    };
    tell(&elsewhere).await;
    assert_eq!(expire().await, 0);
    tell(&LANE).await;
    assert_eq!(expire().await, 1, "nobody has one");
    assert_eq!(
        outbox
            .count("outbox.dead_letters where endpoint = ''")
            .await,
        1
    );
}

#[tokio::test]
async fn where_a_dead_head_holds_its_key_only_heads_die_and_what_is_not_live_yet_holds_nothing() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let later = "now() + interval '1 hour'";
    let scheduled = outbox.expired(&format!("'a', {later}, 0")).await;
    let head = outbox.expired(&format!("'a', {later}, 1")).await;
    let behind = outbox.expired("'a', null, 0").await;
    let alive = outbox.insert("'b', null").await;
    let after = outbox.expired("'b', null, 0").await;
    let keyless = outbox.expired("null, null, 0").await;
    let on_its_way = outbox.expired("'c', null, 0").await;
    let claimed = outbox.lease(&me, &take_in_order(100)).await;
    let others: Vec<Uuid> = claimed
        .ids
        .iter()
        .copied()
        .filter(|id| *id != on_its_way)
        .collect();
    let release: Vec<_> = others
        .iter()
        .map(|id| crate::outbox::verdict(claimed.id, *id, Settlement::Release))
        .collect();
    outbox.settle(&me, &release).await;
    let waits = outbox.expired("'c', null, 0").await;
    let all = [
        scheduled, head, behind, alive, after, keyless, on_its_way, waits,
    ];

    let expiry = outbox.expire(true, &all).await;
    assert_eq!(expiry.dead, 3);
    assert_eq!(
        outbox.pending().await,
        [behind, alive, after, on_its_way, waits].into()
    );
    let held: Vec<Uuid> = outbox.all("select id from outbox.held_keys", &[]).await;
    assert_eq!(held, [head]);
    assert_eq!(outbox.expire(true, &all).await.dead, 0, "nothing more");

    // Where it goes on, all of them die but for the one on its way.
    let expiry = outbox.expire(false, &all).await;
    assert_eq!(expiry.dead, 3);
    assert_eq!(outbox.pending().await, [alive, on_its_way].into());
    let keys: BTreeSet<&str> = expiry.keys.iter().map(String::as_str).collect();
    assert_eq!(keys, ["a", "b", "c"].into());
    assert_eq!(outbox.count("outbox.held_keys").await, 1);
}

#[tokio::test]
async fn history_that_can_not_be_written_stops_no_death() {
    let outbox = Outbox::new().await;
    outbox.drop_partitions("outbox.attempts").await;
    let id = outbox.expired("null, null, 0").await;
    let expiry = outbox.expire(false, &[id]).await;
    assert!(expiry.dead == 1 && expiry.history_error.unwrap().contains("partition"));
    assert_eq!(
        outbox
            .count("outbox.dead_letters where reason = 'expired' and attempts = 0")
            .await,
        1
    );
}

#[tokio::test]
async fn several_at_once_do_no_harm() {
    let outbox = Outbox::new().await;
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(outbox.expired("'k', null, 0").await);
    }
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (store, ids) = (outbox.database.store(), ids.clone());
        tasks.spawn(async move {
            let mut dead = 0;
            for part in ids.chunks(10) {
                dead += store
                    .expire(Uuid::nil(), "r", &LANE, Some(ENDPOINT), false, part)
                    .await
                    .unwrap()
                    .dead;
            }
            dead
        });
    }
    let dead: i32 = tasks.join_all().await.iter().sum();
    let left = i32::try_from(outbox.pending().await.len()).unwrap();
    assert_eq!(dead + left, 100);
    assert_eq!(outbox.count("outbox.dead_letters").await, i64::from(dead));
    assert_eq!(outbox.count("outbox.attempts").await, i64::from(dead));
}

// === how they are found ===

#[tokio::test]
async fn a_round_meets_each_row_that_expired_and_none_that_did_not() {
    let outbox = Outbox::new().await;
    outbox
        .run(
            "insert into outbox.messages (topic, endpoint, expires_at)
             select 'a' || n % 3, case when n % 2 = 0 then 'x' else '' end, now() - interval '1 s' * (n % 2) from generate_series(1, 50) n;
             insert into outbox.messages (topic, expires_at) select 'b', '-infinity' from generate_series(1, 20) n;
             insert into outbox.messages (topic, expires_at) select 'c', unnest(array[null, now() + interval '1 h', 'infinity'])",
        )
        .await;
    let (mut met, mut place, mut looks) = (BTreeSet::new(), Some(Place::default()), 0);
    while let Some(after) = place {
        let expired = outbox.store.expired(after, 7).await.unwrap();
        for (lane, ids) in expired.lanes {
            for id in ids {
                assert!(met.insert((lane.clone(), id)), "met twice");
            }
        }
        place = expired.next;
        looks += 1;
    }
    assert_eq!((met.len(), looks), (70, 11));
    let lanes: BTreeSet<Lane> = met.into_iter().map(|(lane, _)| lane).collect();
    assert_eq!(lanes.len(), 7);
    let mut none = outbox.store.expired(Place::default(), 100).await.unwrap();
    none.lanes.retain(|(lane, _)| lane.topic == "c");
    assert!(none.lanes.is_empty());
    outbox.run("delete from outbox.messages").await;
    let nothing = outbox.store.expired(Place::default(), 100).await.unwrap();
    assert!(nothing.lanes.is_empty() && nothing.next.is_none());
}
