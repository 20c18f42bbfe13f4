//! A receiver that speaks HTTP/2 from the first byte, without TLS.
use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, Version, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outbox_relay::delivery::{Endpoint, HttpVersion};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tokio_postgres::Client;

use crate::support::{
    Database, database,
    relay::{endpoint, relay, start},
    rows::{SOON, all_settled, assert_nothing_left, count, insert},
};

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Version and body of each request.
    requests: Mutex<Vec<(Version, Bytes)>>,
}

/// Answers 204 to everything until it is dropped; returns its port. After so many requests a connection says GOAWAY, as each
/// deployment of a receiver does.
async fn receiver(seen: Arc<Seen>, most: usize) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            seen.connections.fetch_add(1, Ordering::SeqCst);
            let seen = Arc::clone(&seen);
            let enough = Arc::new(Notify::new());
            let (counted, say) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&enough));
            let answer = service_fn(move |request: Request<Incoming>| {
                let seen = Arc::clone(&seen);
                if counted.fetch_add(1, Ordering::SeqCst) + 1 == most {
                    say.notify_one();
                }
                async move {
                    let version = request.version();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    seen.requests.lock().unwrap().push((version, body));
                    let mut response = Response::new(Full::<Bytes>::default());
                    *response.status_mut() = hyper::StatusCode::NO_CONTENT;
                    Ok::<_, Infallible>(response)
                }
            });
            connections.spawn(async move {
                let served = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answer);
                let mut served = pin!(served);
                tokio::select! {
                    done = &mut served => return drop(done),
                    () = enough.notified() => served.as_mut().graceful_shutdown(),
                }
                served.await.ok();
            });
        }
    });
    (port, tasks)
}

/// Delivers 300 messages to such a receiver, and nothing is left. Returns what it saw, and a connection to the database.
async fn deliver(most: usize) -> (Arc<Seen>, Client, Database) {
    let database = database().await;
    let client = database.connect().await;
    let seen = Arc::new(Seen::default());
    let (port, _receiver) = receiver(Arc::clone(&seen), most).await;
    let endpoint = Endpoint {
        http_version: HttpVersion::Http2,
        ..endpoint("shop", &format!("http://127.0.0.1:{port}/"))
    };
    let relay = start(relay(&database.url, endpoint));
    insert(&client, "t", 300).await;
    all_settled(&client, SOON).await;
    relay.stop().await;
    let successes = count(&client, "attempts where outcome = 'success'").await;
    assert_eq!(successes, 300);
    assert_nothing_left(&client).await;
    (seen, client, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_prior_knowledge_all_requests_share_a_connection() {
    let (seen, ..) = deliver(usize::MAX).await;
    let requests = std::mem::take(&mut *seen.requests.lock().unwrap());
    assert_eq!(requests.len(), 300);
    assert!(
        requests
            .iter()
            .all(|(version, _)| *version == Version::HTTP_2)
    );
    assert!(requests.iter().all(|(_, body)| body.starts_with(b"{\"n\"")));
    assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_says_goaway_costs_no_attempt() {
    let (seen, client, _database) = deliver(7).await;
    let connections = seen.connections.load(Ordering::SeqCst);
    assert!((2..=300).contains(&connections), "{connections}");
    assert_eq!(count(&client, "attempts").await, 300);
    let requests = seen.requests.lock().unwrap().len();
    assert_eq!(requests, 300, "nothing came twice");
}
