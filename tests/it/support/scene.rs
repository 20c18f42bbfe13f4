//! The stage of most tests: one database, one receiver, one relay between them.
use outbox_relay::{
    lab::receiver::{Receiver, Reply, Request},
    relay::Relay,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    Database, database,
    relay::{Running, endpoint, relay, start},
    rows::{SOON, all_settled, assert_nothing_left, insert_one},
};

/// A database, a receiver with this script, and a relay between them.
pub(crate) struct Scene {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) receiver: Receiver,
}

impl Scene {
    /// A new one.
    pub(crate) async fn new(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Scene {
        let database = database().await;
        Scene {
            client: database.connect().await,
            database,
            receiver: Receiver::start(script).unwrap(),
        }
    }

    /// The relay, not yet started.
    pub(crate) fn relay(&self) -> Relay {
        relay(
            &self.database.url,
            endpoint("shop", &self.receiver.url("/hook?x=1")),
        )
    }

    /// Starts the relay.
    pub(crate) fn start(&self) -> Running {
        start(self.relay())
    }

    /// Commits one row, and runs a relay until nothing is pending.
    pub(crate) async fn deliver(&self, columns: &str, values: &str) -> Uuid {
        let id = insert_one(&self.client, columns, values).await;
        let relay = self.start();
        all_settled(&self.client, SOON).await;
        relay.stop().await;
        assert_nothing_left(&self.client).await;
        id
    }

    /// The one dead letter: reason, status, attempts.
    pub(crate) async fn dead(&self) -> (String, Option<i32>, i32) {
        let query = "select reason, status, attempts from outbox.dead_letters";
        let row = self.client.query_one(query, &[]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }
}
