//! What a settle must not do: count twice, or act on what its leases no longer give the right to.

use outbox_relay::{
    message::{Reason, Settlement},
    store::{Records, Settle},
};

use super::{HOUR, leased};
use crate::outbox::{Outbox, take, verdict};

/// All that a settle can change, as text.
async fn everything(outbox: &Outbox) -> Vec<String> {
    let mut all = Vec::new();
    for table in [
        "messages",
        "leases",
        "attempts",
        "delivered",
        "dead_letters",
        "held_keys",
    ] {
        let rows = format!("select '{table} ' || t::text from outbox.{table} t order by 1");
        all.extend(outbox.all::<String>(&rows, &[]).await);
    }
    all
}

#[tokio::test]
async fn a_settle_that_is_sent_twice_changes_nothing() {
    let (outbox, me, lease) = leased(5).await;
    let ways = [
        Settlement::Delivered,
        Settlement::Retry(HOUR),
        Settlement::Dead(Reason::Rejected),
        Settlement::Release,
    ];
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .zip(ways)
        .map(|(id, way)| Settle {
            hold: true,
            ..verdict(lease.id, *id, way)
        })
        .collect();
    // The same parameters each time, `seq` too.
    let settles: Vec<Settle> = outbox.of_now(&settles).await;
    assert_eq!(outbox.archive(&me, &settles).await.settled.len(), 3);
    let before = everything(&outbox).await;
    for _ in 0..3 {
        let again = outbox.archive(&me, &settles).await;
        assert!(again.settled.is_empty());
        assert_eq!(everything(&outbox).await, before);
    }
}

#[tokio::test]
async fn without_its_lease_only_a_success_counts() {
    let (outbox, me, lease) = leased(4).await;
    let other = outbox.relay().await;
    // Given back behind its back, and leased by another.
    outbox.store.recover(me.relay, &[]).await.unwrap();
    let theirs = outbox.lease(&other, &take(4)).await;
    let before = everything(&outbox).await;
    for way in [
        Settlement::Retry(HOUR),
        Settlement::Dead(Reason::Rejected),
        Settlement::Release,
    ] {
        // Neither under its old number, nor under the other's.
        for number in [lease.id, theirs.id] {
            let late = Settle {
                hold: true,
                ..verdict(number, lease.ids[0], way)
            };
            assert!(outbox.settle(&me, &[late]).await.settled.is_empty());
            assert_eq!(everything(&outbox).await, before, "{way:?}");
        }
    }
    let late = verdict(lease.id, lease.ids[0], Settlement::Delivered);
    assert_eq!(outbox.settle(&me, &[late]).await.settled, [lease.ids[0]]);
    assert_eq!(outbox.count("outbox.messages").await, 3);
    // The other one finds it gone, and its lease ends all the same.
    outbox
        .settle_all(&other, &theirs, Settlement::Delivered)
        .await;
    assert_eq!(outbox.count("outbox.leases").await, 0);
    assert_eq!(outbox.count("outbox.attempts").await, 4);
}

#[tokio::test]
async fn a_late_answer_does_not_touch_a_replayed_message() {
    for way in [
        Settlement::Delivered,
        Settlement::Retry(HOUR),
        Settlement::Dead(Reason::Rejected),
    ] {
        let (outbox, me, lease) = leased(1).await;
        outbox
            .run("update outbox.messages set generation = 1")
            .await;
        let row = "select m::text from outbox.messages m";
        let before: String = outbox.one(row, &[]).await;
        let late = verdict(lease.id, lease.ids[0], way);
        assert!(outbox.settle(&me, &[late]).await.settled.is_empty());
        assert_eq!(outbox.one::<String>(row, &[]).await, before);
        assert_eq!(
            outbox.count("outbox.leases").await,
            0,
            "it can be claimed anew"
        );
        assert_eq!(outbox.count("outbox.attempts").await, 0);
    }
}

#[tokio::test]
async fn of_two_verdicts_on_one_message_the_first_counts() {
    let ways = [
        Settlement::Delivered,
        Settlement::Retry(HOUR),
        Settlement::Dead(Reason::Rejected),
        Settlement::Release,
    ];
    for first in ways {
        for second in ways {
            let (outbox, me, lease) = leased(2).await;
            let other = verdict(lease.id, lease.ids[1], Settlement::Delivered);
            let settles = [
                verdict(lease.id, lease.ids[0], first),
                other,
                verdict(lease.id, lease.ids[0], second),
            ];
            outbox.archive(&me, &settles).await;
            let found = [
                outbox.count("outbox.delivered").await - 1,
                outbox.count("outbox.messages where attempts = 1").await,
                outbox.count("outbox.dead_letters").await,
                outbox.count("outbox.messages where attempts = 0").await,
            ];
            let expected = ways.map(|way| i64::from(way == first));
            assert_eq!(found, expected, "{first:?}, {second:?}");
            assert_eq!(outbox.count("outbox.leases").await, 0);
            let attempts = 1 + i64::from(first != Settlement::Release);
            assert_eq!(outbox.count("outbox.attempts").await, attempts);
        }
    }
}

#[tokio::test]
async fn of_verdicts_under_two_leases_the_newer_counts() {
    let (outbox, me, old) = leased(1).await;
    // Given back by a settle whose answer was lost, then leased and delivered while that settle is still to be sent again.
    outbox.settle_all(&me, &old, Settlement::Release).await;
    let new = outbox.lease(&me, &take(1)).await;
    assert!(new.id > old.id && new.ids == old.ids);
    let settles = [
        verdict(old.id, old.ids[0], Settlement::Release),
        verdict(new.id, new.ids[0], Settlement::Delivered),
    ];
    assert_eq!(outbox.settle(&me, &settles).await.settled, new.ids);
    assert_eq!(outbox.count("outbox.messages").await, 0);
    assert_eq!(outbox.count("outbox.leases").await, 0);
}

/// 500, or as many as a soak wants.
#[allow(
    clippy::disallowed_methods,
    reason = "it configures this test, not the relay"
)]
fn rounds() -> i32 {
    std::env::var("OUTBOX_DEADLOCK_ROUNDS").map_or(500, |text| text.parse().unwrap())
}

#[tokio::test]
async fn settle_and_reap_at_the_same_time_never_deadlock() {
    let rounds: i32 = rounds();
    let outbox = Outbox::new().await;
    outbox
        .run(&format!(
            "insert into outbox.messages (topic, key) select 't', 'k' || n % 7 from generate_series(1, {}) n",
            rounds * 12
        ))
        .await;
    let ways = [
        Settlement::Delivered,
        Settlement::Retry(HOUR),
        Settlement::Dead(Reason::Rejected),
        Settlement::Delivered,
    ];
    // Its late successes come without a lease.
    let (late, reaper) = (outbox.database.store(), outbox.database.store());
    for round in 0..rounds {
        let me = outbox.relay().await;
        let leases = [
            outbox.lease(&me, &take(6)).await,
            outbox.lease(&me, &take(6)).await,
        ];
        let all = leases
            .iter()
            .flat_map(|lease| lease.ids.iter().map(|id| (lease.id, *id)));
        let settles: Vec<Settle> = all
            .clone()
            .zip(ways.iter().cycle())
            .map(|((lease, id), way)| Settle {
                hold: true,
                ..verdict(lease, id, *way)
            })
            .collect();
        let successes: Vec<Settle> = all
            .map(|(_, id)| verdict(0, id, Settlement::Delivered))
            .collect();
        // All of them, across both leases, or every other one: that is where two orders of locking would meet.
        let every = usize::try_from(round % 3).unwrap().max(1);
        let some: Vec<Settle> = successes
            .into_iter()
            .skip(every - 1)
            .step_by(every)
            .collect();
        let settles = outbox.of_now(&settles).await;
        let some = outbox.of_now(&some).await;
        let (settled, reaped, late) = tokio::join!(
            outbox
                .store
                .settle(&me, "a relay", "", &settles, Records::ALL),
            reaper.reap(me.relay, 0, u32::from(round % 2 == 0)),
            late.settle(&me, "a relay", "", &some, Records::ATTEMPTS),
        );
        settled.unwrap();
        assert!(reaped.unwrap().reaped);
        late.unwrap();
    }
    assert_eq!(outbox.count("outbox.leases").await, 0);
    assert_eq!(outbox.count("outbox.relays").await, 0);
    // Whatever came first, nothing was lost: each is delivered, dead or still there.
    let gone: i64 = outbox
        .one(
            "select count(distinct id) from (select id from outbox.messages union all select id from outbox.dead_letters
               union all select id from outbox.attempts where settlement = 'delivered') i",
            &[],
        )
        .await;
    assert_eq!(gone, i64::from(rounds) * 12);
}

#[tokio::test]
async fn a_late_success_does_not_remove_a_row_that_uses_the_id_again() {
    let (outbox, me, lease) = leased(1).await;
    let id = lease.ids[0];
    let late = outbox
        .of_now(&[verdict(lease.id, id, Settlement::Delivered)])
        .await;
    outbox.settle(&me, &late).await;
    outbox
        .run(&format!(
            "insert into outbox.messages (id, topic) values ('{id}', 't')"
        ))
        .await;
    assert!(outbox.settle(&me, &late).await.settled.is_empty());
    assert_eq!(outbox.count("outbox.messages").await, 1);
}
