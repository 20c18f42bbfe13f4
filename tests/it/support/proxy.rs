//! A TCP proxy before the database that fails on command: cuts, swallows, or loses the answer to a commit.
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::pooled_port;

/// What a message of the client must hold for its connection to be cut behind it.
type Trap = Option<Vec<u8>>;

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    target: AtomicU16,
    accepted: AtomicU64,
    /// Nothing passes, and nobody is told.
    hole: watch::Sender<bool>,
    /// Raised: all connections are cut.
    cuts: watch::Sender<u64>,
    /// Connections are refused by closing them.
    closed: AtomicBool,
    trap: watch::Sender<Trap>,
    sprung: AtomicU64,
}

impl Proxy {
    /// Listens on a free port, before a PostgreSQL on 127.0.0.1.
    pub(crate) async fn start(target: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(pooled_port(target)),
            accepted: AtomicU64::new(0),
            hole: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            closed: AtomicBool::new(false),
            trap: watch::Sender::new(None),
            sprung: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Proxy {
            port,
            shared,
            _tasks: tasks,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database that goes through here.
    pub(crate) fn url(&self, url: &str) -> String {
        let mut url: reqwest::Url = url.parse().unwrap();
        url.set_port(Some(self.port)).unwrap();
        // The trap must be able to read.
        url.set_query(Some("sslmode=disable"));
        url.into()
    }

    /// Serves new connections by another server on 127.0.0.1.
    pub(crate) fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// How many connections were made.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Cuts all connections; new ones are served.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Refuses new connections, or serves them again.
    pub(crate) fn close(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::SeqCst);
        if closed {
            self.cut();
        }
    }

    /// Swallows everything, or lets it through again.
    pub(crate) fn hole(&self, hole: bool) {
        self.shared.hole.send_replace(hole);
    }

    /// The next transaction whose bytes hold this word is passed on with its commit, and its answer is lost with the
    /// connection.
    pub(crate) fn lose_answer_to(&self, word: &str) {
        self.shared.trap.send_replace(Some(word.into()));
    }

    /// How many answers were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.sprung.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted.unwrap();
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                if !shared.closed.load(Ordering::SeqCst) {
                    connections.spawn(serve(client, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Ends when either side does, or when it is cut.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.borrow_and_update();
    let target = shared.target.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut seen = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_client.read(&mut buffer).await?;
            if read == 0 {
                return Ok::<(), io::Error>(());
            }
            open(&shared).await;
            to_server.write_all(&buffer[..read]).await?;
            if shared.springs(&mut seen, &buffer[..read]) {
                return Ok(());
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return Ok::<(), io::Error>(());
            }
            open(&shared).await;
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    let sprung = tokio::select! {
        biased;
        _ = cuts.changed() => return,
        _ = there => shared.is_sprung(),
        _ = back => return,
    };
    if sprung {
        // The server works on in peace, and the client hears nothing of it.
        drop((from_client, to_client));
        tokio::io::copy(&mut from_server, &mut tokio::io::sink())
            .await
            .ok();
    }
}

/// Waits while there is a hole.
async fn open(shared: &Shared) {
    let mut hole = shared.hole.subscribe();
    hole.wait_for(|hole| !hole).await.ok();
}

impl Shared {
    /// Whether a transaction with the word in it has been passed on up to its commit.
    fn springs(&self, seen: &mut Vec<u8>, part: &[u8]) -> bool {
        let trap = self.trap.borrow().clone();
        let Some(word) = trap else {
            seen.clear();
            return false;
        };
        seen.extend_from_slice(part);
        let holds = |word: &[u8]| seen.windows(word.len()).any(|window| window == word);
        let commits = holds(b"COMMIT");
        let springs = commits && holds(&word);
        if commits {
            seen.clear();
        }
        if springs {
            self.trap.send_replace(None);
            self.sprung.fetch_add(1, Ordering::SeqCst);
        }
        springs
    }

    fn is_sprung(&self) -> bool {
        self.trap.borrow().is_none() && self.sprung.load(Ordering::SeqCst) > 0
    }
}
