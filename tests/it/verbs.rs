//! What operators do to messages: replay, discard, release-key, cancel, and jobs of many.
use std::time::Duration;

use outbox_relay::{
    message::{Lease, Reason, Settlement},
    store::{Mandate, Registration, Settle},
};
use uuid::Uuid;

use crate::{
    outbox::{Outbox, take_in_order, verdict},
    support::rows::mandate,
};

mod cli;
mod find;
mod jobs;
mod json;
mod life;
mod pieces;
mod replay;

const HOUR: Duration = Duration::from_secs(3600);

/// Claims all there is, and lets it die; a head closes its key if it is to.
async fn bury(outbox: &Outbox, me: &Registration, hold: bool) -> Lease {
    let lease = outbox.lease(me, &take_in_order(100)).await;
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .map(|id| Settle {
            hold,
            ..verdict(lease.id, *id, Settlement::Dead(Reason::Rejected))
        })
        .collect();
    outbox.settle(me, &settles).await;
    lease
}

/// Claims all there is, delivers it, and keeps the payloads.
async fn deliver(outbox: &Outbox, me: &Registration) -> Lease {
    let lease = outbox.lease(me, &take_in_order(100)).await;
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .map(|id| Settle {
            generation: 0,
            ..verdict(lease.id, *id, Settlement::Delivered)
        })
        .collect();
    let settles = with_generations(outbox, settles).await;
    outbox.archive(me, &settles).await;
    lease
}

/// As a relay sends them: for the generation that it loaded.
async fn with_generations(outbox: &Outbox, mut settles: Vec<Settle>) -> Vec<Settle> {
    for settle in &mut settles {
        let query = "select generation from outbox.messages where id = $1";
        settle.generation = outbox.one(query, &[&settle.id]).await;
    }
    settles
}

/// The history of what operators did: outcome, who, why.
async fn told(outbox: &Outbox, id: Uuid) -> Vec<(String, String, Option<String>)> {
    let query = "select outcome, relay, reason from outbox.attempts
                  where id = $1 and attempt = 0 order by started_at";
    let rows = outbox.client.query(query, &[&id]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

#[tokio::test]
async fn a_discard_opens_the_key_and_a_released_key_keeps_the_dead_letter() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let claim = outbox_relay::store::Claim {
        hold: true,
        ..take_in_order(1)
    };
    for (n, verb) in ["discard", "release"].into_iter().enumerate() {
        let head = outbox.insert("'k', null::timestamptz").await;
        outbox.insert("'k', null::timestamptz").await;
        let lease = outbox.lease(&me, &claim).await;
        assert_eq!(lease.ids, [head]);
        let dead = Settle {
            hold: true,
            ..verdict(lease.id, head, Settlement::Dead(Reason::Rejected))
        };
        outbox.settle(&me, &[dead]).await;
        assert!(outbox.claim(&me, &claim).await.lease.is_none());
        let why = mandate("no use", "ann");
        if verb == "discard" {
            assert_eq!(outbox.store.discard(head, None, why).await.unwrap(), 1);
            assert_eq!(outbox.store.discard(head, None, why).await.unwrap(), 0);
        } else {
            assert_eq!(
                outbox
                    .store
                    .release_key("t", "other", None, why)
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(
                outbox
                    .store
                    .release_key("t", "k", Some("elsewhere"), why)
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(
                outbox.store.release_key("t", "k", None, why).await.unwrap(),
                1
            );
        }
        let outcome = ["discarded", "key_released"][n];
        assert_eq!(
            told(&outbox, head).await,
            [(outcome.into(), "ann".into(), Some("no use".into()))]
        );
        deliver(&outbox, &me).await;
        assert_eq!(
            outbox.count("outbox.dead_letters").await,
            i64::try_from(n).unwrap()
        );
    }
}

#[tokio::test]
async fn who_cancelled_and_why_is_kept() {
    let outbox = Outbox::new().await;
    let id = outbox.insert("'k', null::timestamptz").await;
    assert_eq!(
        outbox
            .store
            .cancel(id, mandate("a mistake", "ann"))
            .await
            .unwrap(),
        (1, 0)
    );
    assert_eq!(
        told(&outbox, id).await,
        [("cancelled".into(), "ann".into(), Some("a mistake".into()))]
    );
    let by: String = outbox.one("select current_user::text", &[]).await;
    let other = outbox.insert("'k', null::timestamptz").await;
    outbox
        .store
        .cancel(other, Mandate::default())
        .await
        .unwrap();
    assert_eq!(told(&outbox, other).await, [("cancelled".into(), by, None)]);
}

#[tokio::test]
async fn a_history_without_a_partition_of_today_stands_in_nobodys_way() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let id = bury(&outbox, &me, true).await.ids[0];
    outbox.drop_partitions("outbox.attempts").await;
    let replayed = outbox
        .store
        .replay(id, None, false, false, Mandate::default());
    assert_eq!(replayed.await.unwrap(), (vec![id], 0));
    outbox.drop_partitions("outbox.attempts").await;
    let cancelled = outbox.store.cancel(id, Mandate::default());
    assert_eq!(cancelled.await.unwrap(), (1, 0));
    assert_eq!(told(&outbox, id).await.len(), 1);
}

#[tokio::test]
async fn a_key_opens_though_its_dead_head_died_anew_under_another_place() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("'k', null::timestamptz").await;
    let id = bury(&outbox, &me, true).await.ids[0];
    // The application used the id again, and that expired.
    outbox.run("update outbox.dead_letters set seq = 77").await;
    let replayed = outbox
        .store
        .replay(id, None, false, false, Mandate::default());
    assert_eq!(replayed.await.unwrap(), (vec![id], 0));
    assert_eq!(outbox.count("outbox.held_keys").await, 0);
}
