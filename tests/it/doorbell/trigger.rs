//! The trigger: when it rings, when it does not, and where it hangs.
use std::{
    fs,
    future::{pending, poll_fn},
    task::Poll,
    time::Duration,
};

use outbox_relay::{
    lab::cluster::{Cluster, Options},
    store::{Expand, Floors, Store},
};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinSet, time::timeout};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::locks;
use crate::{
    outbox::Outbox,
    support::{
        config, empty_database, eventually,
        rows::{SOON, one},
    },
};

const HANGS: &str =
    "select exists (select from pg_trigger where tgname = 'messages_ring' and tgenabled = 'O')";

/// A session that listens.
struct Ear {
    rings: UnboundedReceiver<()>,
    client: Client,
    _connection: JoinSet<()>,
}

impl Ear {
    async fn new(url: &str) -> Ear {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let (sender, rings) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(poll_fn(move |context| {
            loop {
                match std::task::ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notification(_))) => drop(sender.send(())),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        }));
        client.batch_execute("listen outbox_bell").await.unwrap();
        Ear {
            rings,
            client,
            _connection: tasks,
        }
    }

    /// How often it rang up to now: what was committed before is heard before the answer to a question.
    async fn heard(&mut self) -> usize {
        self.client.batch_execute("select 1").await.unwrap();
        let mut heard = 0;
        while self.rings.try_recv().is_ok() {
            heard += 1;
        }
        heard
    }
}

#[tokio::test]
async fn it_rings_at_commit_and_only_while_somebody_sleeps() {
    let outbox = Outbox::new().await;
    let sleeper = outbox.database.connect().await;
    let app = outbox.database.connect().await;
    app.batch_execute("set role outbox_writer; set search_path = pg_temp")
        .await
        .unwrap();
    let mut ear = Ear::new(&outbox.database.url).await;
    let insert = "insert into outbox.messages (topic) values ('t')";
    app.batch_execute(insert).await.unwrap();
    assert_eq!(ear.heard().await, 0, "nobody sleeps");

    let armed: bool = one(&sleeper, "select outbox.arm()").await;
    assert!(armed);
    app.batch_execute(insert).await.unwrap();
    assert_eq!(ear.heard().await, 1);
    app.batch_execute(&format!("begin; {insert}; {insert}"))
        .await
        .unwrap();
    assert_eq!(ear.heard().await, 0, "not before the commit");
    app.batch_execute("commit").await.unwrap();
    assert_eq!(ear.heard().await, 1, "once for a transaction");
    app.batch_execute(&format!("begin; {insert}; rollback"))
        .await
        .unwrap();
    assert_eq!(ear.heard().await, 0, "nothing was committed");
    app.batch_execute(
        "insert into outbox.messages (topic) select 't' from generate_series(1, 1000)",
    )
    .await
    .unwrap();
    assert_eq!(ear.heard().await, 1, "once for a statement");

    app.batch_execute(&format!("set outbox.doorbell = off; {insert}"))
        .await
        .unwrap();
    assert_eq!(ear.heard().await, 0, "it was silenced");
    app.batch_execute(&format!(
        "reset outbox.doorbell; begin; set local outbox.doorbell = off; {insert}; commit; {insert}"
    ))
    .await
    .unwrap();
    assert_eq!(ear.heard().await, 1, "for one transaction");

    assert!(one::<bool>(&sleeper, "select pg_advisory_unlock(1870034018, 1)").await);
    app.batch_execute(insert).await.unwrap();
    assert_eq!(ear.heard().await, 0, "nobody sleeps any more");
}

#[tokio::test]
async fn it_rings_for_one_that_queues_and_a_cancel_ends_that() {
    let outbox = Outbox::new().await;
    let (sleeper, old, app) = (
        outbox.database.connect().await,
        outbox.database.connect().await,
        outbox.database.connect().await,
    );
    let insert = "insert into outbox.messages (topic) values ('t')";
    old.batch_execute(&format!("begin; {insert}"))
        .await
        .unwrap();
    let mut ear = Ear::new(&outbox.database.url).await;
    for round in 0..2 {
        let arm = sleeper.query_one("select outbox.arm()", &[]);
        let meanwhile = async {
            let queued = format!("select exists (select from {})", locks(1, false));
            eventually("it queues", SOON, async || {
                one(&outbox.client, &queued).await
            })
            .await;
            app.batch_execute(insert).await.unwrap();
            assert_eq!(ear.heard().await, 1, "the new one rings");
            if round == 0 {
                sleeper.cancel_token().cancel_query(NoTls).await.unwrap();
            } else {
                old.batch_execute("commit").await.unwrap();
            }
        };
        let (armed, ()) = tokio::join!(arm, meanwhile);
        assert_eq!(armed.unwrap().get::<_, bool>(0), round == 1);
        app.batch_execute(insert).await.unwrap();
        assert_eq!(ear.heard().await, round);
    }
    assert!(one::<bool>(&sleeper, "select pg_advisory_unlock(1870034018, 1)").await);
}

#[tokio::test]
async fn fan_out_rings_for_nobody() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox.insert("null, null::timestamptz").await;
    let sleeper = outbox.database.connect().await;
    assert!(one::<bool>(&sleeper, "select outbox.arm()").await);
    let mut ear = Ear::new(&outbox.database.url).await;
    let expand = Expand {
        topic: "t",
        to: &["a", "b"],
        known: &["a", "b"],
        limit: 10,
        bytes: i64::MAX,
        floors: Floors::default(),
    };
    let expanded = outbox.store.expand(&me, &expand).await.unwrap();
    assert_eq!(expanded.endpoints, ["a", "b"]);
    assert_eq!(ear.heard().await, 0);
}

// === where it hangs ===

#[tokio::test]
async fn a_migration_keeps_to_what_was_wanted() {
    let database = empty_database().await;
    let (store, client) = (database.store(), database.connect().await);
    store.migrate(None, false).await.unwrap();
    assert!(one::<bool>(&client, HANGS).await, "by itself");
    for on in [false, true, false] {
        for _ in 0..2 {
            store.set_doorbell(on).await.unwrap();
            assert_eq!(one::<bool>(&client, HANGS).await, on);
            store.migrate(None, false).await.unwrap();
            assert_eq!(one::<bool>(&client, HANGS).await, on);
            assert_eq!(store.doorbell().await.unwrap().hangs, on);
        }
    }
    store.set_doorbell(true).await.unwrap();
    let disable = "alter table outbox.messages disable trigger messages_ring";
    client.batch_execute(disable).await.unwrap();
    store.migrate(None, false).await.unwrap();
    assert!(
        !store.doorbell().await.unwrap().hangs,
        "somebody's decision"
    );
}

#[tokio::test]
async fn where_transactions_can_be_prepared_there_is_none_unless_it_is_wanted() {
    let prepared = ("max_prepared_transactions".to_owned(), "5".to_owned());
    let options = Options {
        settings: vec![prepared],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await.unwrap();
    let url = cluster.url("postgres");
    let store = Store::new(&config(&url)).unwrap();
    store.migrate(None, false).await.unwrap();
    let mut connections = JoinSet::new();
    let mut connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        connections.spawn(connection);
        client
    };
    let (client, sleeper) = (connect().await, connect().await);
    assert!(!one::<bool>(&client, HANGS).await);
    assert!(one::<bool>(&sleeper, "select outbox.arm()").await);
    let prepare =
        "begin; insert into outbox.messages (topic) values ('t'); prepare transaction 'p'";
    client.batch_execute(prepare).await.unwrap();
    client.batch_execute("commit prepared 'p'").await.unwrap();

    store.set_doorbell(true).await.unwrap();
    store.migrate(None, false).await.unwrap();
    assert!(one::<bool>(&client, HANGS).await);
    assert!(client.batch_execute(prepare).await.is_err());
    client.batch_execute("rollback").await.unwrap();
    let off = "set outbox.doorbell = off";
    client.batch_execute(off).await.unwrap();
    client.batch_execute(prepare).await.unwrap();
    client.batch_execute("rollback prepared 'p'").await.unwrap();
}

#[tokio::test]
async fn a_cancel_says_nothing_in_the_servers_log() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let url = cluster.url("postgres");
    let store = Store::new(&config(&url)).unwrap();
    store.migrate(None, false).await.unwrap();
    let mut connections = JoinSet::new();
    let mut connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        connections.spawn(connection);
        client
    };
    let (old, sleeper, client) = (connect().await, connect().await, connect().await);
    old.batch_execute("begin; insert into outbox.messages (topic) values ('t')")
        .await
        .unwrap();
    let before = fs::read_to_string(cluster.log_path()).unwrap();
    let queued = format!("select exists (select from {})", locks(1, false));
    // The server sends a cancel as two signals: once in a while the second comes while the first is seen to, or ends the next wait.
    for _ in 0..50 {
        let arm = sleeper.query_one("select outbox.arm()", &[]);
        let cancel = async {
            eventually("it queues", SOON, async || one(&client, &queued).await).await;
            sleeper.cancel_token().cancel_query(NoTls).await.unwrap();
            pending().await
        };
        let either = async {
            tokio::select! {
                armed = arm => armed,
                never = cancel => never,
            }
        };
        let armed = timeout(Duration::from_secs(20), either).await;
        let armed = armed.expect("it is cancelled").unwrap();
        assert!(!armed.get::<_, bool>(0));
    }
    let after = fs::read_to_string(cluster.log_path()).unwrap();
    assert_eq!(&after[before.len()..], "");
}
