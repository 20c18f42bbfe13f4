//! Two that meet on the same row: each order of events has one meaning.
use outbox_relay::{
    lab::receiver::{Receiver, Reply},
    message::{Reason, Settlement},
    route::{OnDead, Order, Pattern, Route, Routes},
    store::Settle,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    outbox::{Outbox, take, verdict},
    support::{
        database,
        relay::{endpoint, relay, start},
        rows::{SOON, all_settled, assert_nothing_left, count, insert_one, mandate},
    },
};

/// A claim that another connection has made and not yet committed, and a cancel that came meanwhile: what it says when the claim ended
/// in this way.
async fn cancel_during_claim(end: &str) -> (Outbox, Uuid, (i64, i64)) {
    let outbox = Outbox::new().await;
    let id = outbox.insert("'k', null::timestamptz").await;
    let me = outbox.relay().await;
    let slow = outbox.database.connect().await;
    slow.batch_execute("begin").await.unwrap();
    let claim = "select state from outbox.claim($1, 0, $2, 't', '', 'e', false, false, 9, 9, 9, 0, null, 0, 0, '{}', null, 1, 1, 1, 0)";
    let claimed = slow.query_one(claim, &[&me.relay, &me.epoch]).await;
    assert_eq!(claimed.unwrap().get::<_, &str>(0), "claimed");
    let store = outbox.store.clone();
    let mut cancel = JoinSet::new();
    cancel.spawn(async move { store.cancel(id, mandate("a mistake", "ann")).await.unwrap() });
    outbox.blocked("outbox.cancel").await;
    slow.batch_execute(end).await.unwrap();
    let (cancelled, in_flight) = cancel.join_next().await.unwrap().unwrap();
    (outbox, id, (cancelled.into(), in_flight.into()))
}

#[tokio::test]
async fn a_cancel_waits_for_a_claim_and_takes_nothing_back_that_is_on_its_way() {
    let (outbox, id, said) = cancel_during_claim("commit").await;
    assert_eq!(said, (0, 1));
    let leased = format!("outbox.leases where ids = array['{id}'::uuid]");
    assert_eq!(outbox.count(&leased).await, 1);
    assert_eq!(outbox.count("outbox.messages").await, 1);
    assert_eq!(outbox.count("outbox.attempts").await, 0);
}

#[tokio::test]
async fn a_cancel_waits_for_a_claim_and_takes_back_what_that_gave_up() {
    let (outbox, _, said) = cancel_during_claim("rollback").await;
    assert_eq!(said, (1, 0));
    assert_eq!(outbox.count("outbox.messages").await, 0);
    let told = "outbox.attempts where settlement = 'cancelled' and relay = 'ann'";
    assert_eq!(outbox.count(told).await, 1);
}

/// Somebody removes a row, as its owner can, after the claim has chosen it and before its payload is read.
#[tokio::test]
async fn a_row_that_goes_between_claim_and_load_leaves_its_key_open() {
    let database = database().await;
    let client = database.connect().await;
    let trigger = "create function public.vanish() returns trigger language plpgsql as $$ begin
                       delete from outbox.messages m where m.id = any (new.ids) and m.payload::text = '\"gone\"'; return null; end $$;
                   create trigger vanish after insert on outbox.leases for each row execute function public.vanish()";
    client.batch_execute(trigger).await.unwrap();
    for payload in ["\"first\"", "\"gone\"", "\"last\""] {
        insert_one(&client, "key, payload", &format!("'k', '{payload}'")).await;
    }
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let mut relay = relay(&database.url, endpoint("shop", &receiver.url("/")));
    relay.routes = Routes::new(vec![Route {
        topic: Pattern::parse("**").unwrap(),
        to: vec!["shop".into()],
        order: Order::Key(OnDead::Hold),
    }]);
    let running = start(relay);
    all_settled(&client, SOON).await;
    insert_one(&client, "key, payload", "'k', '\"later\"'").await;
    all_settled(&client, SOON).await;
    running.stop().await;
    let bodies: Vec<_> = receiver
        .requests()
        .into_iter()
        .map(|one| one.body)
        .collect();
    assert_eq!(bodies, ["\"first\"", "\"last\"", "\"later\""]);
    assert_nothing_left(&client).await;
    assert_eq!(count(&client, "attempts").await, 3);
}

/// After a crash leases have the numbers of leases that it forgot. A settle of one of those, sent before the crash, comes late.
#[tokio::test]
async fn a_settle_from_before_a_crash_changes_nothing_under_a_lease_of_the_same_number() {
    let outbox = Outbox::new().await;
    outbox
        .run("insert into outbox.messages (topic, key) select 't', 'k' || n from generate_series(1, 4) n")
        .await;
    let sequence = "select last_value from pg_sequences where schemaname = 'outbox' and sequencename = 'leases_lease_seq'";
    let (me, before) = (
        outbox.relay().await,
        outbox.all::<Option<i64>>(sequence, &[]).await[0],
    );
    let old = outbox.lease(&me, &take(4)).await;
    let ways = [
        Settlement::Retry(std::time::Duration::from_secs(60)),
        Settlement::PutOff(std::time::Duration::from_secs(60)),
        Settlement::Dead(Reason::Rejected),
        Settlement::Release,
    ];
    let each = old.ids.iter().zip(ways);
    let late: Vec<Settle> = each.map(|(id, way)| verdict(old.id, *id, way)).collect();
    let late = outbox.of_now(&late).await;
    // What a crash leaves: the lease and its number are forgotten, its relay is not.
    let crash = format!(
        "truncate outbox.epoch; delete from outbox.leases;
         select setval('outbox.leases_lease_seq', {}, {})",
        before.unwrap_or(1),
        before.is_some()
    );
    outbox.run(&crash).await;
    let anew = outbox.relay().await;
    assert_ne!(anew.epoch, me.epoch);
    let new = outbox.lease(&anew, &take(4)).await;
    assert_eq!((new.id, &new.ids), (old.id, &old.ids));
    let all = async || {
        let rows = "select m::text from outbox.messages m union all select l::text from outbox.leases l order by 1";
        outbox.all::<String>(rows, &[]).await
    };
    let then = all().await;
    assert!(outbox.archive(&me, &late).await.settled.is_empty());
    assert_eq!(all().await, then);
    for table in ["attempts", "delivered", "dead_letters", "held_keys"] {
        assert_eq!(outbox.count(&format!("outbox.{table}")).await, 0, "{table}");
    }
    // ... and its own does.
    let settles: Vec<Settle> = new
        .ids
        .iter()
        .map(|id| verdict(new.id, *id, Settlement::Delivered))
        .collect();
    assert_eq!(
        outbox
            .settle(&anew, &outbox.of_now(&settles).await)
            .await
            .settled
            .len(),
        4
    );
}
