//! A real HTTP/1.1 receiver that misbehaves on script, and remembers what it was sent.
//!
//! The script is a function from a request to a [`Reply`], called when the request has been read to its end. A script
//! that needs to change its mind looks at [`Request::number`] or at something it shares with its test.
//!
//! What is waited for is a change, never an interval: [`Receiver::wait_for`] returns the moment a request is recorded.
use std::{
    error::Error as _,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Method, Response, body::Incoming, http::request::Parts, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use self::reply::{Break, Script};

mod reply;

pub use self::reply::Reply;

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// The how-manieth of this receiver's requests it is; the first is 1.
    pub number: u64,
    /// `POST`, most of the time.
    pub method: Method,
    /// The path, with the query if there is one.
    pub path: String,
    /// All headers, names in lower case.
    pub headers: HeaderMap,
    /// The whole body; empty in the record of a receiver that keeps none.
    pub body: Bytes,
    /// When its head had been read.
    pub at: Instant,
    /// The how-manieth of this receiver's connections it came on; the first is 1.
    pub connection: u64,
}

/// What a receiver keeps.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests to record; those that follow are answered and counted only.
    pub keep: usize,
    /// Whether their bodies are recorded, too. The script sees them in any case.
    pub keep_bodies: bool,
}

/// A listening receiver; it closes everything when dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinSet<()>,
}

/// Fewer requests than expected came in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} requests instead of {wanted} after {waited:?}")]
pub struct Missing {
    /// How many were waited for.
    pub wanted: u64,
    /// How many came.
    pub count: u64,
    /// How long was waited.
    pub waited: Duration,
}

/// What the receiver and its connections have in common.
struct Shared {
    script: Box<Script>,
    options: Options,
    record: Mutex<Vec<Request>>,
    count: watch::Sender<u64>,
    connections: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

/// A request between its arrival and the last byte of its answer.
struct InFlight(Arc<Shared>);

// === impl Request ===

impl Request {
    /// A header's value, if it is there and text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            keep: usize::MAX,
            keep_bodies: true,
        }
    }
}

// === impl Receiver ===

impl Receiver {
    /// Listens on a free port of 127.0.0.1 and keeps everything.
    pub fn start(
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Receiver> {
        Receiver::start_with(Options::default(), script)
    }

    /// As [`Receiver::start`], but keeps only so much: for runs with very many requests.
    pub fn start_with(
        options: Options,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Receiver> {
        Receiver::run(super::listen()?, options, Box::new(script))
    }

    /// As [`Receiver::start`], on this port: a receiver that comes back.
    pub fn start_on(
        port: u16,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Receiver> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Receiver::run(listener, Options::default(), Box::new(script))
    }

    fn run(
        listener: std::net::TcpListener,
        options: Options,
        script: Box<Script>,
    ) -> io::Result<Receiver> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            options,
            record: Mutex::default(),
            count: watch::Sender::new(0),
            connections: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared), stopped));
        Ok(Receiver {
            address,
            shared,
            stop: Some(stop),
            accepting,
        })
    }

    /// Closes the listener and all connections, in the middle of an answer too; the record stays.
    pub async fn stop(&mut self) {
        self.stop = None;
        while self.accepting.join_next().await.is_some() {}
    }

    /// The URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests so far, in the order of their numbers.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.record().clone()
    }

    /// How many requests have been read, recorded or not.
    pub fn count(&self) -> u64 {
        *self.shared.count.borrow()
    }

    /// Returns when at least `wanted` requests have been read.
    pub async fn wait_for(&self, wanted: u64, deadline: Duration) -> Result<(), Missing> {
        let mut count = self.shared.count.subscribe();
        let enough = count.wait_for(|count| *count >= wanted);
        if let Ok(Ok(_)) = timeout(deadline, enough).await {
            return Ok(());
        }
        Err(Missing {
            wanted,
            count: self.count(),
            waited: deadline,
        })
    }

    /// How many connections have been accepted.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many requests are being answered.
    pub fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::SeqCst)
    }

    /// How many requests were being answered at once at most.
    ///
    /// One whose client has left is among them until the receiver sees that.
    pub fn most_in_flight(&self) -> u64 {
        self.shared.most_in_flight.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                    connections.spawn(serve(stream, number, Arc::clone(&shared)));
                }
                // Out of file descriptors, most likely: the client waits in the backlog until there is one.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = &mut stopped => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, number: u64, shared: Arc<Shared>) {
    // Or the bytes of a slow answer would wait for each other.
    stream.set_nodelay(true).ok();
    let service = service_fn(|request| answer(&shared, number, request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = (&mut connection).await
        && let Some(Break::Reset) = error.source().and_then(|source| source.downcast_ref())
    {
        let stream = connection.into_parts().io.into_inner();
        stream.set_zero_linger().ok();
    }
}

async fn answer(
    shared: &Arc<Shared>,
    connection: u64,
    request: hyper::Request<Incoming>,
) -> Result<Response<reply::Body>, Break> {
    let at = Instant::now();
    let in_flight = InFlight::new(shared);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Break::HangUp)?.to_bytes();
    let request = shared.arrived(head, body, at, connection);
    (shared.script)(&request).give(in_flight).await
}

// === impl Shared ===

impl Shared {
    fn arrived(&self, head: Parts, body: Bytes, at: Instant, connection: u64) -> Request {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut record = self.record();
        let request = Request {
            number: *self.count.borrow() + 1,
            method: head.method,
            path: path.to_owned(),
            headers: head.headers,
            body,
            at,
            connection,
        };
        if record.len() < self.options.keep {
            let mut kept = request.clone();
            if !self.options.keep_bodies {
                kept.body.clear();
            }
            record.push(kept);
        }
        // Counted while the record is locked: so numbers follow its order, and who has waited finds the request.
        self.count.send_replace(request.number);
        request
    }

    fn record(&self) -> MutexGuard<'_, Vec<Request>> {
        self.record
            .lock()
            .expect("nothing panics while it is locked")
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("count", &*self.count.borrow())
            .finish_non_exhaustive()
    }
}

// === impl InFlight ===

impl InFlight {
    fn new(shared: &Arc<Shared>) -> InFlight {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_in_flight.fetch_max(now, Ordering::SeqCst);
        InFlight(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
