//! An outbox with one lane and one endpoint, for the tests that meet the store and its SQL without a loop around it.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use outbox_relay::{
    message::{Class, Delivery, Lane, Lease, Outcome, Settlement},
    store::{Claim, Claimed, Floors, Records, Registration, Settle, SettleReport, Shared, Store},
};
use tokio::time::Instant;
use tokio_postgres::{Client, types::ToSql};
use uuid::Uuid;

use crate::support::{Database, database, eventually, rows::way};

/// The lane that everything is about.
pub(crate) static LANE: LazyLock<Lane> = LazyLock::new(|| Lane {
    topic: "t".into(),
    endpoint: String::new(),
});

/// Where it goes.
pub(crate) const ENDPOINT: &str = "e";

/// A database with that lane and endpoint, a store, and a superuser's connection to look behind its back.
pub(crate) struct Outbox {
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) database: Database,
}

/// All that can be had, from the bottom.
pub(crate) fn take(limit: i32) -> Claim<'static> {
    Claim {
        lane: &LANE,
        endpoint: ENDPOINT,
        in_order: false,
        hold: false,
        limit,
        bytes: i64::MAX,
        chain: 8,
        floors: Floors::default(),
        open_keys: &[],
        shared: Shared::default(),
    }
}

/// The same, in the order of keys.
pub(crate) fn take_in_order(limit: i32) -> Claim<'static> {
    Claim {
        in_order: true,
        ..take(limit)
    }
}

/// What follows for one message, after a request where that settlement has one.
pub(crate) fn verdict(lease: i64, id: Uuid, settlement: Settlement) -> Settle {
    let answer = |class, status, error: Option<&str>| Outcome {
        class,
        status: Some(status),
        error: error.map(str::to_owned),
        response: Some("said the receiver".into()),
        retry_after: None,
        duration: Duration::from_millis(20),
        exchange: None,
        output: None,
        poll: None,
    };
    let outcome = match settlement {
        Settlement::Delivered => Some(answer(Class::Success, 200, None)),
        Settlement::Retry(_) => Some(answer(Class::Unavailable, 503, Some("503"))),
        Settlement::PutOff(_) => Some(answer(Class::Unavailable, 429, Some("429"))),
        Settlement::Dead(_) => Some(answer(Class::Rejected, 422, Some("422"))),
        Settlement::Release => None,
    };
    Settle {
        lane: Lane {
            topic: String::new(),
            endpoint: String::new(),
        },
        key: None,
        lease,
        id,
        // Filled in by those who send it.
        seq: 0,
        generation: 0,
        endpoint: ENDPOINT.into(),
        settlement,
        hold: false,
        attempt: 1,
        outcome,
        started: Instant::now(),
    }
}

impl Outbox {
    pub(crate) async fn new() -> Outbox {
        let database = database().await;
        let store = database.store();
        store
            .add_endpoints(&[(ENDPOINT, Duration::from_secs(10))])
            .await
            .unwrap();
        store.add_lanes(&[way(&LANE)]).await.unwrap();
        Outbox {
            store,
            client: database.connect().await,
            database,
        }
    }

    /// A new relay.
    pub(crate) async fn relay(&self) -> Registration {
        let lease = Duration::from_secs(15);
        self.store
            .register("a relay", "digest", lease)
            .await
            .unwrap()
    }

    /// Claims, and expects that to be possible.
    pub(crate) async fn claim(&self, me: &Registration, claim: &Claim<'_>) -> Claimed {
        self.store.claim(me, claim).await.unwrap()
    }

    /// Claims, and expects a lease.
    pub(crate) async fn lease(&self, me: &Registration, claim: &Claim<'_>) -> Lease {
        let claimed = self.claim(me, claim).await;
        let state = claimed.state;
        claimed
            .lease
            .unwrap_or_else(|| panic!("a lease was expected, not {state:?}"))
    }

    /// The same, and what was read of its messages.
    pub(crate) async fn loaded(
        &self,
        me: &Registration,
        claim: &Claim<'_>,
    ) -> (Lease, Vec<Delivery>) {
        let claimed = self.claim(me, claim).await;
        let lease = claimed.lease.expect("a lease");
        (lease, claimed.deliveries)
    }

    /// Settles without an archive.
    pub(crate) async fn settle(&self, me: &Registration, settles: &[Settle]) -> SettleReport {
        self.send(me, settles, Records::ATTEMPTS).await
    }

    /// Settles with an archive.
    pub(crate) async fn archive(&self, me: &Registration, settles: &[Settle]) -> SettleReport {
        self.send(me, settles, Records::ALL).await
    }

    /// Settles and writes down this much of it.
    pub(crate) async fn send(
        &self,
        me: &Registration,
        settles: &[Settle],
        records: Records,
    ) -> SettleReport {
        let settles = self.of_now(settles).await;
        self.store
            .settle(me, "a relay", "", &settles, records)
            .await
            .unwrap()
    }

    /// The same, for the rows that are there now (where no `seq` is said).
    pub(crate) async fn of_now(&self, settles: &[Settle]) -> Vec<Settle> {
        let ids: Vec<Uuid> = settles.iter().map(|settle| settle.id).collect();
        let rows = self
            .client
            .query(
                "select id, seq from outbox.messages where id = any ($1)",
                &[&ids],
            )
            .await
            .unwrap();
        let seqs: HashMap<Uuid, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let of_now = |settle: &Settle| match settle.seq {
            0 => Settle {
                seq: seqs.get(&settle.id).copied().unwrap_or(0),
                ..settle.clone()
            },
            _ => settle.clone(),
        };
        settles.iter().map(of_now).collect()
    }

    /// Settles all of a lease in the same way.
    pub(crate) async fn settle_all(&self, me: &Registration, lease: &Lease, how: Settlement) {
        let settles: Vec<Settle> = lease
            .ids
            .iter()
            .map(|id| verdict(lease.id, *id, how))
            .collect();
        self.settle(me, &settles).await;
    }

    /// Runs statements behind the relay's back.
    pub(crate) async fn run(&self, sql: &str) {
        self.client
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The first column of all rows.
    pub(crate) async fn all<T>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<T>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let rows = self
            .client
            .query(sql, parameters)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The one value that a query has.
    pub(crate) async fn one<T>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> T
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let mut all = self.all(sql, parameters).await;
        assert_eq!(all.len(), 1, "{sql}");
        all.remove(0)
    }

    /// How many rows: `from` is all that follows that word.
    pub(crate) async fn count(&self, from: &str) -> i64 {
        self.one(&format!("select count(*) from {from}"), &[]).await
    }

    /// Inserts one row; `values` are those of `(key, due_at)`.
    pub(crate) async fn insert(&self, values: &str) -> Uuid {
        self.one(
            &format!(
                "insert into outbox.messages (topic, key, due_at)
                 select 't', v.key::text, v.due::timestamptz from (values ({values})) v (key, due) returning id"
            ),
            &[],
        )
        .await
    }

    /// The `seq` of messages, in that order.
    pub(crate) async fn seqs(&self, ids: &[Uuid]) -> Vec<i64> {
        self.all(
            "select seq from outbox.messages where id = any ($1) order by seq",
            &[&ids],
        )
        .await
    }

    /// Drops all partitions of history or archive, as if nobody had made them.
    pub(crate) async fn drop_partitions(&self, of: &str) {
        let drops: Vec<String> = self
            .all(
                "select 'drop table ' || inhrelid::regclass from pg_inherits where inhparent = $1::text::regclass",
                &[&of],
            )
            .await;
        assert!(!drops.is_empty());
        self.run(&drops.join(";")).await;
    }

    /// Waits until some session waits for a lock and `query` says which (matched against its statement).
    pub(crate) async fn blocked(&self, query: &str) {
        let waits = format!(
            "pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%{query}%'"
        );
        eventually(
            &format!("{query} waits for a lock"),
            Duration::from_secs(10),
            async || self.count(&waits).await > 0,
        )
        .await;
    }
}
