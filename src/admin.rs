//! What a relay answers over HTTP: whether it lives, has started, and can deliver; what it counts; and what
//! operators see and do.
//!
//! Model: probes and scrapes are a skin over what the relay says of itself, and wait for no database; the API is one over the store.
//! Failure: who connects is a guest. There are only so many connections at once, of which the oldest makes room for the next, so
//! that guests who say nothing keep no probe from being answered; each has only so long for the head of a request. Against a flood of
//! thousands of connections a second there is nothing here: that is for the network.

mod api;
mod callbacks;
mod callers;
mod health;
mod jobs;
mod page;
mod problem;
mod scrape;
mod signed;
mod webhooks;

use std::{collections::VecDeque, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use reqwest::Url;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

use self::{
    api::{Api, Writes},
    callers::Callers,
    problem::Problem,
    webhooks::Hook,
};
pub use self::{signed::Scheme, webhooks::Webhook};
use crate::{
    maintenance::Trail,
    metrics::Metrics,
    relay::Vitals,
    store::{self, Store},
};

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
    /// The file with the tokens of those who may change things.
    pub operators_file: Option<PathBuf>,
    /// The file with the tokens of those who may read.
    pub readers_file: Option<PathBuf>,
    /// Where participants of sagas reach this, to answer asynchronous steps later; `None`: they can't.
    pub callbacks: Option<Url>,
    /// The file with the tokens of those who may send messages.
    pub writers_file: Option<PathBuf>,
    /// The file with the secrets of those who sign the messages that they send.
    pub signers_file: Option<PathBuf>,
    /// Bytes of the body of a message that is sent.
    pub max_body: usize,
    /// Webhooks of others that become messages.
    pub webhooks: Vec<Webhook>,
}

/// What listens and does not answer yet.
pub struct Door {
    listener: TcpListener,
    router: Router,
    /// Where there is an API: what sees its jobs through.
    jobs: Option<(Store, Arc<Notify>)>,
    vitals: Vitals,
}

/// Nobody can ask.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or is none of this host's.
    #[error("http.listen {address}: {error}")]
    Address {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// A file of tokens can't be used.
    #[error("{0}")]
    Tokens(String),
    /// The database's configuration can't be used.
    #[error(transparent)]
    Database(#[from] store::Error),
}

impl Config {
    /// Whether anybody may see or do anything.
    fn has_api(&self) -> bool {
        self.operators_file.is_some() || self.readers_file.is_some() || self.may_write()
    }

    /// Whether anybody may send messages.
    fn may_write(&self) -> bool {
        self.writers_file.is_some() || self.signers_file.is_some() || !self.webhooks.is_empty()
    }
}

impl Door {
    /// Listens, if that is wanted.
    ///
    /// # Errors
    ///
    /// The address is taken, or is none of this host's; a file of tokens can't be used.
    pub async fn open(
        config: &Config,
        database: &store::Config,
        vitals: &Vitals,
        metrics: &Metrics,
        trail: &Trail,
    ) -> Result<Option<Door>, Error> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error::Address { address, error })?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "listening for HTTP");
        }
        let mut router = health::router(vitals.clone()).merge(scrape::router(metrics.clone()));
        let mut jobs = None;
        if config.has_api() {
            let callers = Callers::new(config).map_err(Error::Tokens)?;
            let hooks: Result<Vec<Hook>, String> = config.webhooks.iter().map(Hook::new).collect();
            let writes = config
                .may_write()
                .then(|| Store::new(database))
                .transpose()?;
            let begun = Arc::new(Notify::new());
            let api = Api {
                store: Store::new(database)?,
                acts: Store::single(database, store::PATIENCE)?,
                writes: writes.map(|store| Writes {
                    store,
                    max_body: config.max_body,
                    vitals: vitals.clone(),
                }),
                hooks: Arc::new(hooks.map_err(Error::Tokens)?),
                callers: Arc::new(callers),
                trail: trail.clone(),
                begun: Arc::clone(&begun),
            };
            jobs = Some((api.store.clone(), begun));
            router = router.merge(api::router(api)).merge(page::router());
        }
        if config.callbacks.is_some() {
            let store = Store::single(database, store::PATIENCE)?;
            router = router.merge(callbacks::router(store));
        }
        Ok(Some(Door {
            listener,
            router: router.fallback(async || Problem::missing("there is nothing here")),
            jobs,
            vitals: vitals.clone(),
        }))
    }

    /// Answers until the stop.
    pub async fn run(self, stop: &CancellationToken) {
        let mut tasks = JoinSet::new();
        if let Some((store, begun)) = self.jobs {
            tasks.spawn(jobs::run(store, begun, self.vitals, stop.clone()));
        }
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
