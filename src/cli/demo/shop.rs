//! The application of the demo: orders and their messages, in one transaction each.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Error, NoTls};
use uuid::Uuid;

const WRITERS: u32 = 4;

/// The business table.
const TABLE: &str = "CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, customer text NOT NULL)";

pub(super) struct Shop {
    writers: JoinSet<Result<(), Error>>,
    ledger: Arc<Mutex<Ledger>>,
}

/// What was committed, and what was rolled back.
#[derive(Default)]
struct Ledger {
    committed: BTreeSet<Uuid>,
    rolled_back: BTreeSet<Uuid>,
}

impl Shop {
    /// Opens the shop: its writers commit `messages` in all.
    pub(super) async fn open(url: &str, messages: u32) -> Result<Shop, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        client.batch_execute(TABLE).await?;
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let share = messages / WRITERS + u32::from(writer < messages % WRITERS);
            writers.spawn(write(
                url.to_owned(),
                u64::from(writer),
                share,
                ledger.clone(),
            ));
        }
        Ok(Shop { writers, ledger })
    }

    /// How many are committed, and whether those were all.
    pub(super) fn progress(&mut self) -> Result<(usize, bool), Error> {
        while let Some(ended) = self.writers.try_join_next() {
            if let Ok(result) = ended {
                result?;
            }
        }
        let committed = self
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .committed
            .len();
        Ok((committed, self.writers.is_empty()))
    }

    /// The ids that were committed, and those that were rolled back.
    pub(super) fn ledger(&self) -> (BTreeSet<Uuid>, BTreeSet<Uuid>) {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        (ledger.committed.clone(), ledger.rolled_back.clone())
    }
}

async fn write(
    url: String,
    seed: u64,
    share: u32,
    ledger: Arc<Mutex<Ledger>>,
) -> Result<(), Error> {
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    let mut dice = StdRng::seed_from_u64(seed);
    let mut committed = 0;
    while committed < share {
        let (customer, roll) = (dice.random_range(0..50_u32), dice.random_range(0..1000_u32));
        if order(&mut client, customer, roll, &ledger).await? {
            committed += 1;
        }
    }
    Ok(())
}

/// One business transaction. Returns whether it was committed.
async fn order(
    client: &mut Client,
    customer: u32,
    roll: u32,
    ledger: &Mutex<Ledger>,
) -> Result<bool, Error> {
    let customer = format!("customer-{customer}");
    let transaction = client.transaction().await?;
    let order: i64 = transaction
        .query_one(
            "INSERT INTO shop.orders (customer) VALUES ($1) RETURNING id",
            &[&customer],
        )
        .await?
        .get(0);
    // The receiver refuses one order in two hundred for good.
    let note = if roll % 200 == 1 { "refuse" } else { "ship" };
    let id: Uuid = transaction
        .query_one(
            "INSERT INTO outbox.messages (topic, key, payload)
             VALUES ('order.created', $1, json_build_object('order', $2::bigint, 'note', $3::text))
             RETURNING id",
            &[&customer, &order, &note],
        )
        .await?
        .get(0);
    let keep = roll >= 100;
    if keep {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    let book = if keep {
        &mut ledger.committed
    } else {
        &mut ledger.rolled_back
    };
    book.insert(id);
    Ok(keep)
}
