//! What a relay answers over HTTP: whether it lives, has started, and can deliver; and what it counts.
//!
//! Model: a skin over what the relay says of itself; no answer waits for the database.
//! Failure: who connects is a guest. There are only so many connections at once, of which the oldest makes room for the next, so
//! that guests who say nothing keep no probe from being answered; each has only so long for the head of a request. Against a flood of
//! thousands of connections a second there is nothing here: that is for the network.

mod health;
mod scrape;

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, relay::Vitals};

/// Connections at once.
const CONNECTIONS: usize = 64;

/// From the first byte of a connection, or the end of an answer, to the end of the next request's head.
const HEAD: Duration = Duration::from_secs(10);

/// Where a relay is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The address to listen at; `None` = nobody can ask.
    pub listen: Option<SocketAddr>,
    /// How often the database is looked at for those who scrape.
    pub sample_every: Duration,
}

/// What listens and does not answer yet.
pub struct Door {
    listener: TcpListener,
    router: Router,
}

/// The address could not be listened at.
#[derive(Debug, thiserror::Error)]
#[error("http.listen {address}: {error}")]
pub struct Error {
    address: SocketAddr,
    error: io::Error,
}

impl Door {
    /// Listens, if that is wanted.
    ///
    /// # Errors
    ///
    /// The address is taken, or is none of this host's.
    pub async fn open(
        config: &Config,
        vitals: &Vitals,
        metrics: &Metrics,
    ) -> Result<Option<Door>, Error> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error { address, error })?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "listening for HTTP");
        }
        let router = health::router(vitals.clone()).merge(scrape::router(metrics.clone()));
        Ok(Some(Door { listener, router }))
    }

    /// Answers until the stop.
    pub async fn run(self, stop: &CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut guests: VecDeque<AbortHandle> = VecDeque::new();
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            while tasks.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    failing = false;
                    guests.retain(|guest| !guest.is_finished());
                    if guests.len() >= CONNECTIONS
                        && let Some(oldest) = guests.pop_front()
                    {
                        oldest.abort();
                    }
                    let service = TowerToHyperService::new(self.router.clone());
                    guests.push_back(tasks.spawn(serve(stream, service)));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: those that are open must be closed by somebody first.
                    if !failing {
                        tracing::warn!(%error, "no connection for HTTP can be accepted, trying again");
                    }
                    failing = true;
                    time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, service: TowerToHyperService<Router>) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection for HTTP ended");
    }
}
