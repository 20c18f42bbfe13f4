//! The client against servers that misbehave: plain sockets, since no HTTP library would send what these do.

mod answers;
mod batches;
mod credentials;
mod failures;
mod formats;
mod guard;
mod oauth2;
mod proxy;
mod signing;
mod tls;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use reqwest::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};
use uuid::Uuid;

use super::{
    answer::{Answer, excerpt},
    body::PART,
    *,
};

/// Long enough for anything that should happen on a loaded machine, short enough for a test that hangs.
const SOON: Duration = Duration::from_secs(10);

/// The deadline of endpoints that are meant to miss it.
const SHORT: Duration = Duration::from_millis(300);

/// A listener that hands each connection to a script.
struct Server {
    url: String,
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// One request as it came off the wire.
struct Request {
    head: String,
    body: Vec<u8>,
}

/// The server's side of one connection.
struct Peer(TcpStream);

impl Server {
    async fn start<F, S>(script: F) -> Server
    where
        F: Fn(Peer) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                connections.spawn(script(Peer(socket)));
            }
        });
        Server {
            url,
            accepted,
            _tasks: tasks,
        }
    }

    /// One that answers every request with the same bytes and hands over what it got.
    async fn recording(answer: &'static [u8]) -> (Server, mpsc::UnboundedReceiver<Request>) {
        let (tx, rx) = mpsc::unbounded_channel();
        let server = Server::start(move |mut peer| {
            let tx = tx.clone();
            async move {
                while let Some(request) = peer.request().await {
                    tx.send(request).unwrap();
                    peer.send(answer).await;
                }
            }
        })
        .await;
        (server, rx)
    }

    /// One that answers every request with the same bytes, then does what `then` says with the connection.
    async fn answering(answer: &'static [u8], then: Then) -> Server {
        Server::start(move |mut peer| async move {
            while peer.request().await.is_some() {
                peer.send(answer).await;
                match then {
                    Then::KeepOpen => {}
                    Then::HangUp => return,
                    Then::Stall => peer.closed().await,
                }
            }
        })
        .await
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy)]
enum Then {
    KeepOpen,
    HangUp,
    Stall,
}

impl Peer {
    /// The next request; `None` when the client has closed.
    async fn request(&mut self) -> Option<Request> {
        let mut bytes = Vec::new();
        let end = loop {
            if self.0.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .expect("a length")
            .parse()
            .unwrap();
        while bytes.len() < end + length {
            self.0.read_buf(&mut bytes).await.unwrap();
        }
        let body = bytes.split_off(end);
        Some(Request { head, body })
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Until the client has closed.
    async fn closed(&mut self) {
        while self.0.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    }
}

/// The next thing that a server has to say.
async fn soon<T>(rx: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(SOON, rx.recv()).await.unwrap().unwrap()
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        concurrency: 4,
        timeout: SOON,
        connect_timeout: SOON,
        ..Endpoint::new("test", url.parse().unwrap())
    }
}

fn client(url: &str) -> Client {
    Client::new(&endpoint(url)).unwrap()
}

pub(super) fn delivery(body: Option<&'static [u8]>) -> Delivery {
    Delivery {
        lease: 1,
        lane_endpoint: String::new(),
        id: Uuid::from_u128(7),
        topic: "order.created".into(),
        key: None,
        kind: None,
        body: body.map(Bytes::from_static),
        content_type: Some("application/json".into()),
        headers: Vec::new(),
        seq: 1,
        attempts: 0,
        lost: 0,
        throttled: 0,
        generation: 0,
        sent_to: None,
        step: None,
        created_at: "2026-01-02T03:04:05Z".into(),
        age: Duration::ZERO,
        expires_in: None,
    }
}

/// What percent-encoding stands for, in the words of RFC 3986.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                assert!(!digits.iter().any(u8::is_ascii_lowercase), "{text}");
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

async fn attempt(url: &str) -> Outcome {
    client(url).attempt(&delivery(Some(b"{}"))).await
}

async fn attempt_shortly(url: &str) -> Outcome {
    let endpoint = Endpoint {
        timeout: SHORT,
        ..endpoint(url)
    };
    let client = Client::new(&endpoint).unwrap();
    client.attempt(&delivery(Some(b"{}"))).await
}

/// What the table-like tests look at, besides the words.
fn seen(outcome: &Outcome) -> (Class, Option<u16>, Option<&str>) {
    (outcome.class, outcome.status, outcome.response.as_deref())
}
