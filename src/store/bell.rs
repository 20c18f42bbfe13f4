//! The doorbell's two sessions: one that listens, and one whose lock makes inserters ring.
//!
//! Model: they are connections of their own, never of the pool, since both keep something of a session: a LISTEN, and
//! advisory locks. Which lock says what stands in `sql/hang_doorbell.sql` and `sql/functions/doorbell.sql`.
//! Authority: before anything is left on a session it has proved that it is one: a notification that somebody else sent has reached it
//! while it was idle. Behind a pooler that shares sessions among transactions none ever comes, and a lock would stay with
//! whoever is next.
//! Failure: any error of either means that both are given up. The server lets go of the locks with the session, and finds out
//! within about ten seconds where the network hides its end.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time,
};
use tokio_postgres::{AsyncMessage, Client, Row, types::Type};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::{
    Error, Parameter, Store,
    connect::{Connector, Fresh},
    sql,
};

/// A session that hears nothing for so long is none.
const PROOF: Duration = Duration::from_secs(2);

/// None of these statements takes as long, but for the one that waits for the lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the doorbell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Inserters ring when somebody sleeps.
    pub hangs: bool,
    /// A relay keeps it.
    pub kept: bool,
    /// Sessions keep it or listen to it whose relay was reaped.
    pub stray: bool,
    /// How many relays there are.
    pub relays: usize,
}

/// What became of the try to keep the bell.
pub enum Taken {
    /// It is ours.
    Mine(Box<Bell>),
    /// Another relay was first.
    Kept,
    /// These connections are no sessions: a pooler is between.
    Deaf,
}

/// The two sessions of a keeper. Dropping it lets go of everything.
pub struct Bell {
    /// Hears the rings, which its driver counts.
    pub listener: Listener,
    /// Makes inserters ring.
    pub lock: Lock,
}

/// The session that listens.
pub struct Listener(Line);

/// The session that holds the locks.
pub struct Lock(Line);

/// A connection, and what it was told without having asked.
struct Line {
    client: Client,
    tls: MakeRustlsConnect,
    place: Arc<str>,
    pid: i32,
    words: mpsc::UnboundedReceiver<String>,
    _driver: JoinSet<()>,
}

impl Store {
    /// How the doorbell stands.
    pub async fn doorbell(&self) -> Result<Doorbell, Error> {
        self.one(sql::DOORBELL, &[]).await.map(|row| (&row).into())
    }

    /// Rings, whether somebody sleeps or not.
    pub async fn ring(&self) -> Result<(), Error> {
        self.send_word("").await
    }

    /// Ends the sessions of keepers that were reaped. Returns whether this role may.
    pub async fn hang_up(&self) -> Result<bool, Error> {
        Ok(self.one(sql::HANG_UP, &[]).await?.get("may"))
    }

    async fn send_word(&self, word: &str) -> Result<(), Error> {
        self.call(sql::RING, &[(&word, Type::TEXT)]).await.map(drop)
    }
}

// === impl Bell ===

impl Bell {
    /// Tries to become the keeper for this relay. What rings is counted in `rings`.
    pub async fn take(
        store: &Store,
        relay: Uuid,
        rings: &watch::Sender<u64>,
    ) -> Result<Taken, Error> {
        let Some(bell) = Bell::open(store, rings).await? else {
            return Ok(Taken::Deaf);
        };
        let (lock, listener) = (&bell.lock.0, &bell.listener.0);
        for line in [lock, listener] {
            line.run(sql::BELL_SESSION).await?;
            // Where the system can't, the time-outs of TCP must do.
            drop(line.run(sql::WATCH_CLIENT).await);
        }
        // Before the locks, or somebody might take them for those of a relay that is gone.
        let pids = [lock.pid, listener.pid];
        store
            .call(
                sql::OWN_BELL,
                &[(&relay, Type::UUID), (&&pids[..], Type::INT4_ARRAY)],
            )
            .await?;
        if !lock.one(sql::KEEP, &[]).await?.get::<_, bool>("kept") {
            return Ok(Taken::Kept);
        }
        listener.one(sql::MARK_LISTENER, &[]).await?;
        Ok(Taken::Mine(Box::new(bell)))
    }

    /// Connects, and has both prove to be sessions. `None`: they are not.
    async fn open(store: &Store, rings: &watch::Sender<u64>) -> Result<Option<Bell>, Error> {
        let connector = store.pool.manager();
        let (lock, listener) = tokio::try_join!(
            Line::connect(connector, None),
            Line::connect(connector, Some(rings))
        )?;
        let (mut lock, mut listener) = (lock, listener);
        let word = format!("{} {}", lock.pid, listener.pid);
        for line in [&lock, &listener] {
            line.run(sql::LISTEN).await?;
        }
        store.send_word(&word).await?;
        let proof = async { tokio::join!(lock.hears(&word), listener.hears(&word)) };
        let proved = time::timeout(PROOF, proof).await.is_ok();
        if !proved {
            for line in [&lock, &listener] {
                // For the session that a pooler has lent us: with some luck it is the same as before.
                drop(line.run(sql::UNLISTEN).await);
            }
            return Ok(None);
        }
        lock.run(sql::UNLISTEN).await?;
        Ok(Some(Bell {
            listener: Listener(listener),
            lock: Lock(lock),
        }))
    }

    /// Whether connections like those of this store can keep the bell. Nothing is left behind.
    pub async fn try_out(store: &Store) -> Result<bool, Error> {
        let (rings, _) = watch::channel(0);
        let bell = Bell::open(store, &rings).await?;
        Ok(bell.is_some())
    }
}

// === impl Listener, Lock ===

impl Listener {
    /// Ends when the session does.
    pub async fn broken(&mut self) -> Error {
        self.0.broken().await
    }

    /// Whether the server still answers.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.one(sql::PID, &[]).await.map(drop)
    }

    /// Whether inserters ring for this lock by now.
    pub async fn sees(&self, lock: i32) -> Result<bool, Error> {
        let row = self.0.one(sql::QUEUED, &[(&lock, Type::INT4)]).await?;
        Ok(row.get("queued"))
    }
}

impl Lock {
    /// Its process on the server.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }

    /// Ends when the session does.
    pub async fn broken(&mut self) -> Error {
        self.0.broken().await
    }

    /// Whether the server still answers. Not while it waits for the lock.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.one(sql::PID, &[]).await.map(drop)
    }

    /// Waits for the lock, however long that takes. Returns whether it is held: it is not after [`Lock::cancel`].
    pub async fn arm(&self) -> Result<bool, Error> {
        let rows = self.0.client.query_typed(sql::ARM.text, &[]).await;
        let rows = rows.map_err(|error| self.0.failed(sql::ARM, &error))?;
        Ok(rows.first().is_some_and(|row| row.get("armed")))
    }

    /// Ends the wait for the lock, if there still is one.
    pub async fn cancel(&self) -> Result<(), Error> {
        let token = self.0.client.cancel_token();
        let cancel = token.cancel_query(self.0.tls.clone());
        match time::timeout(PATIENCE, cancel).await {
            Ok(done) => done.map_err(|error| self.0.failed(sql::ARM, &error)),
            Err(_) => Err(self.0.late(sql::ARM)),
        }
    }

    /// Lets go of the lock, which it must hold.
    pub async fn disarm(&self) -> Result<(), Error> {
        self.0.one(sql::DISARM, &[]).await.map(drop)
    }
}

// === impl Line ===

impl Line {
    /// `rings`: where to count what rings on it.
    async fn connect(
        connector: &Connector,
        rings: Option<&watch::Sender<u64>>,
    ) -> Result<Line, Error> {
        let place = connector.place();
        let connected = time::timeout(PATIENCE, connector.open(Some("doorbell"))).await;
        let Fresh {
            client,
            driver: mut connection,
            tls,
        } = connected.map_err(|_| Error::Connect(format!("{place}: no answer")))??;
        let (word, words) = mpsc::unbounded_channel();
        let rings = rings.cloned();
        // It reads whatever comes, at any time: a listener that doesn't would hold up the server's queue.
        let hear = poll_fn(move |context| {
            loop {
                match std::task::ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notification(heard))) if heard.payload().is_empty() => {
                        if let Some(rings) = &rings {
                            rings.send_modify(|count| *count += 1);
                        }
                    }
                    Some(Ok(AsyncMessage::Notification(heard))) => {
                        drop(word.send(heard.payload().to_owned()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        });
        let mut driver = JoinSet::new();
        driver.spawn(hear);
        let mut line = Line {
            client,
            tls,
            place,
            pid: 0,
            words,
            _driver: driver,
        };
        line.pid = line.one(sql::PID, &[]).await?.get("pid");
        Ok(line)
    }

    /// Waits for a word; for ever if the connection breaks.
    async fn hears(&mut self, word: &str) {
        while let Some(heard) = self.words.recv().await {
            if heard == word {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// The words of others' probes are nothing to us.
    async fn broken(&mut self) -> Error {
        while self.words.recv().await.is_some() {}
        Error::Connect(format!("{}: a session of the doorbell broke", self.place))
    }

    fn failed(&self, statement: sql::Statement, error: &tokio_postgres::Error) -> Error {
        Error::failed(statement.name, &self.place, false, error)
    }

    fn late(&self, statement: sql::Statement) -> Error {
        Error::Timeout {
            statement: statement.name,
            after: PATIENCE,
            place: Arc::clone(&self.place),
        }
    }

    async fn run(&self, statement: sql::Statement) -> Result<(), Error> {
        let run = self.client.batch_execute(statement.text);
        match time::timeout(PATIENCE, run).await {
            Ok(done) => done.map_err(|error| self.failed(statement, &error)),
            Err(_) => Err(self.late(statement)),
        }
    }

    async fn one(
        &self,
        statement: sql::Statement,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, Error> {
        let query = self.client.query_typed(statement.text, parameters);
        let rows = match time::timeout(PATIENCE, query).await {
            Ok(rows) => rows.map_err(|error| self.failed(statement, &error))?,
            Err(_) => return Err(self.late(statement)),
        };
        rows.into_iter().next().ok_or(Error::Statement {
            statement: statement.name,
            message: "returned no row".into(),
            state: None,
        })
    }
}

// === impl Doorbell ===

impl From<&Row> for Doorbell {
    fn from(row: &Row) -> Doorbell {
        Doorbell {
            hangs: row.get("hangs"),
            kept: row.get("kept"),
            stray: row.get("stray"),
            relays: usize::try_from(row.get::<_, i64>("relays")).unwrap_or(0),
        }
    }
}
