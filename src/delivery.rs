//! The HTTP edge: one request, and what came of it.
//!
//! An attempt is one HTTP request made of the stored bytes; whatever happens to it is an [`Outcome`], never an error of
//! ours, so that the loop has one path for all of them. What a request is made of is in `request` and the modules that it
//! puts together ([`mod@format`], [`target`], [`headers`], [`idempotency`], [`sign`]; the credentials are in [`auth`]), what
//! an answer or a failure means in `classify`; this file holds what needs a socket.
//!
//! The other side is not trusted: it can be slow, endless, cut off or no HTTP at all. So one deadline runs from the start
//! of the request to the last byte of the answer, of which no more than [`DRAIN`] is read and [`EXCERPT`] kept (where several
//! messages are in one request, more: see [`batch`]). An answer that is not whole is no success, whatever its first line
//! said: the receiver may have died after it.
//!
//! Dropping the future of an attempt closes its connection (HTTP/2: resets its stream). What the HTTP library and the
//! kernel have taken over by then may still arrive; so they are given a large body in parts, and what arrives of it is no
//! request. Otherwise a payload that has been put off, or given to another relay, could come in whole much later.

mod answer;
pub mod auth;
pub mod batch;
mod body;
mod classify;
mod connection;
mod endpoint;
pub(crate) mod file;
pub mod format;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod guard;
mod gzip;
pub mod headers;
pub mod idempotency;
mod participant;
pub mod proxy;
mod record;
mod redact;
mod request;
pub mod sign;
pub mod target;
#[cfg(test)]
mod tests;
pub mod tls;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::StatusCode;
use rustls::crypto::{CryptoProvider, ring};
use tokio::time::{Instant, sleep, timeout};

use self::{
    answer::Answer,
    auth::{Auth, Authorization, oauth2::Failure},
    batch::{Answered, RESULTS},
    file::Watched,
    request::{Maker, Prepared},
};
pub use self::{
    endpoint::{Endpoint, HttpVersion},
    record::Details,
};
use crate::{
    message::{Class, Delivery, Outcome},
    saga::Step,
    trace::Propagation,
};

/// When this host has no room for a connection, it is tried again after this.
const LACK: Duration = Duration::from_millis(100);

/// Bytes of an answer's body that are kept at most.
pub const EXCERPT: usize = 2 * 1024;

/// Bytes of an answer's body that are read at most: the rest of a short one, so that its connection can be used again.
pub const DRAIN: usize = 64 * 1024;

/// Sends the attempts of one endpoint, over connections that no other endpoint shares.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: Watched<reqwest::Client>,
    maker: Maker,
    auth: Auth,
    tls: tls::Config,
    /// Whether a proxy stands between.
    proxied: bool,
    timeout: Duration,
    details: Details,
    /// How many connections were begun so far: an attempt that began none used an old one.
    connects: Arc<AtomicU64>,
}

/// What a request is made of.
#[derive(Clone, Copy)]
enum Messages<'m> {
    One(&'m Delivery),
    Several(&'m [&'m Delivery]),
}

impl<'m> Messages<'m> {
    /// Which step of a saga it is.
    fn step(self) -> Option<&'m Step> {
        match self {
            Messages::One(delivery) => delivery.step.as_deref(),
            Messages::Several(_) => None,
        }
    }
}

/// Why there is no whole answer.
enum Fault {
    /// The row makes no request; the reason has nothing secret in it.
    Unsendable(String),
    /// It broke on its way, or its answer did.
    Broken(reqwest::Error),
    /// There is no token to send it with.
    Token(Failure),
}

/// Why an endpoint can't be sent to at all: found at start, not at the first delivery.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is none that a request can be sent to.
    #[error(
        "endpoint {endpoint}: its URL must be an http:// or https:// one with a host, without credentials"
    )]
    Url {
        /// The endpoint's name.
        endpoint: String,
    },
    /// A file that its configuration names can't be used, or TLS can't be set up.
    #[error("endpoint {endpoint}: {message}")]
    Setup {
        /// The endpoint's name.
        endpoint: String,
        /// What is wrong, and with which file; nothing of what it holds.
        message: String,
    },
}

/// Chooses ring as this process's TLS implementation, unless one has been chosen already.
pub fn install_tls() {
    // An error says that another thread was faster, which is as good.
    if CryptoProvider::get_default().is_none() {
        drop(ring::default_provider().install_default());
    }
}

// === impl Client ===

impl Client {
    /// A client with no connection yet.
    pub fn new(endpoint: &Endpoint) -> Result<Client, ClientError> {
        Client::resolving(endpoint, guard::system())
    }

    /// The same, where names are looked up by `lookup` if the guard is on.
    fn resolving(endpoint: &Endpoint, lookup: guard::Lookup) -> Result<Client, ClientError> {
        install_tls();
        // What reqwest would refuse at the first request would kill that row, and the next, as if they were at fault.
        let scheme = matches!(endpoint.url.scheme(), "http" | "https");
        let credentials = !endpoint.url.username().is_empty() || endpoint.url.password().is_some();
        if !scheme || credentials || endpoint.url.as_str().parse::<hyper::Uri>().is_err() {
            return Err(ClientError::Url {
                endpoint: endpoint.name.clone(),
            });
        }
        let wrong = |message| ClientError::Setup {
            endpoint: endpoint.name.clone(),
            message,
        };
        guard::literals(endpoint).map_err(wrong)?;
        if let Some((key, message)) = batch::refusal(endpoint) {
            return Err(wrong(format!("{key}: {message}")));
        }
        let connects = Arc::new(AtomicU64::new(0));
        Ok(Client(Arc::new(Inner {
            http: connection::pool(endpoint, &connects, lookup).map_err(wrong)?,
            maker: Maker::new(endpoint).map_err(wrong)?,
            auth: Auth::new(&endpoint.name, &endpoint.auth, endpoint.proxy.is_some())
                .map_err(wrong)?,
            tls: endpoint.tls.clone(),
            proxied: endpoint.proxy.is_some(),
            timeout: endpoint.timeout,
            details: endpoint.details,
            connects,
        })))
    }

    /// Sends one request and says what came of it.
    ///
    /// A receiver may close an idle connection at the moment a request is sent on it. So a request that is reset before
    /// any byte of its answer, on a connection that was used before, is sent once more at once: same key, same attempt,
    /// same deadline.
    pub async fn attempt(&self, delivery: &Delivery) -> Outcome {
        self.attempt_within(delivery, Propagation::Untouched).await
    }

    /// The same as a part of a trace.
    pub async fn attempt_within(&self, delivery: &Delivery, trace: Propagation) -> Outcome {
        let mut answer = Answer {
            output: delivery.step.is_some(),
            ..Answer::default()
        };
        let messages = Messages::One(delivery);
        let mut outcome = self.0.attempt(messages, trace, &mut answer).await;
        let redactor = answer.redactor();
        if self.0.details.keeps(outcome.class) {
            outcome.exchange = answer.exchange(&redactor).await;
        }
        redactor.clean(&mut outcome);
        outcome
    }

    /// The same for several messages of one lane in one request.
    pub async fn attempt_batch(&self, deliveries: &[&Delivery], trace: Propagation) -> Answered {
        let mut answer = Answer {
            results: true,
            ..Answer::default()
        };
        let messages = Messages::Several(deliveries);
        let whole = self.0.attempt(messages, trace, &mut answer).await;
        let mut answered = batch::answered(whole, &answer, deliveries);
        // Not before its results were read: a secret can stand in them by chance, and must not change what they say.
        let redactor = answer.redactor();
        let details = self.0.details;
        let each = answered.each.iter_mut().flatten();
        let mut all: Vec<&mut Outcome> = each.chain([&mut answered.whole]).collect();
        let kept = all.iter().any(|outcome| details.keeps(outcome.class));
        let exchange = match kept {
            true => answer.exchange(&redactor).await,
            false => None,
        };
        for outcome in &mut all {
            redactor.clean(outcome);
            if details.keeps(outcome.class) {
                outcome.exchange.clone_from(&exchange);
            }
        }
        answered
    }
}

// === impl Inner ===

impl Inner {
    /// What came of it, with what the receiver may have sent back of our secrets.
    async fn attempt(
        &self,
        messages: Messages<'_>,
        trace: Propagation,
        answer: &mut Answer,
    ) -> Outcome {
        let started = Instant::now();
        let step = messages.step();
        let patience = step.and_then(Step::timeout).unwrap_or(self.timeout);
        let whole = timeout(patience, self.deliver(messages, trace, answer)).await;
        let (class, error) = match whole {
            Ok(Ok(())) => answer.whole(step),
            Ok(Err(Fault::Unsendable(reason))) => {
                (Class::Unsendable, Some(classify::line(&reason)))
            }
            Ok(Err(Fault::Broken(error))) => {
                let (class, error) = answer.broken(error, self.proxied);
                (class, error.map(|text| self.tls.explain(class, text)))
            }
            Ok(Err(Fault::Token(failure))) => answer.refused(
                failure.class,
                &self.tls.explain(failure.class, failure.text),
            ),
            Err(_elapsed) => answer.late(patience),
        };
        Outcome {
            class,
            status: answer.status.map(|status| status.as_u16()),
            error,
            response: answer.excerpt(),
            retry_after: answer.retry_after,
            duration: started.elapsed(),
            exchange: None,
            output: answer.output().filter(|_| class == Class::Success),
            poll: answer.poll.clone(),
        }
    }

    async fn deliver(
        &self,
        messages: Messages<'_>,
        trace: Propagation,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let prepared = match messages {
            Messages::One(delivery) => self.maker.prepare(delivery, trace).await,
            Messages::Several(deliveries) => self.maker.prepare_batch(deliveries, trace).await,
        };
        let prepared = prepared.map_err(Fault::Unsendable)?;
        answer.awaits_token = self.auth.asks();
        let authorization = self.auth.authorization(&self.http.current()).await;
        let authorization = authorization.map_err(Fault::Token)?;
        answer.awaits_token = false;
        self.exchange_again(&prepared, &authorization, answer)
            .await
            .map_err(Fault::Broken)?;
        if answer.status != Some(StatusCode::UNAUTHORIZED) {
            return Ok(());
        }
        // A token may have been revoked: once more with another, if there is one.
        let http = self.http.current();
        let other = self.auth.replacement(&authorization, &http).await;
        let Some(other) = other.map_err(Fault::Token)? else {
            return Ok(());
        };
        *answer = Answer {
            results: answer.results,
            output: answer.output,
            ..Answer::default()
        };
        self.exchange_again(&prepared, &other, answer)
            .await
            .map_err(Fault::Broken)
    }

    async fn exchange_again(
        &self,
        prepared: &Prepared,
        authorization: &Authorization,
        answer: &mut Answer,
    ) -> Result<(), reqwest::Error> {
        let connects = self.connects.load(Ordering::Relaxed);
        let mut result = self.exchange(prepared, authorization, answer).await;
        // This host has no room for another connection; one that is open may be free a moment later. What was lacking
        // after there was a connection is no reason: the receiver may have the request.
        while let Err(error) = &result
            && error.is_connect()
            && answer.status.is_none()
            && let Some(lack) = classify::exhaustion(error)
        {
            answer.exhausted = Some(lack);
            sleep(LACK).await;
            answer.exhausted = None;
            result = self.exchange(prepared, authorization, answer).await;
        }
        // With a connection begun meanwhile, by this attempt or its neighbours, it may have been a new one.
        let reused = self.connects.load(Ordering::Relaxed) == connects;
        let Err(error) = result else { return Ok(()) };
        if !reused || answer.status.is_some() || !classify::is_reset(&error) {
            return Err(error);
        }
        self.exchange(prepared, authorization, answer).await
    }

    async fn exchange(
        &self,
        prepared: &Prepared,
        authorization: &Authorization,
        answer: &mut Answer,
    ) -> Result<(), reqwest::Error> {
        let request = self.maker.request(prepared, authorization);
        // Each time, for a file may have been replaced since the last.
        answer.secrets = prepared.secrets(&request);
        if self.details != Details::None {
            answer.sent = Some(prepared.sent(&request));
        }
        answer.received = None;
        let mut response = self.http.current().execute(request).await?;
        answer.head(&mut response);
        let length = response.content_length();
        // A body that says it is longer takes its connection with it in any case.
        let enough = match length {
            _ if answer.has_results() => RESULTS,
            _ if answer.output => DRAIN,
            Some(length) if length > DRAIN as u64 => EXCERPT,
            Some(_) | None => DRAIN,
        };
        let mut read = 0;
        while read <= enough {
            let Some(chunk) = response.chunk().await? else {
                // Over HTTP/2 hyper takes a stream that was reset without an error for one that ended.
                answer.promised = length.filter(|&length| (read as u64) < length);
                break;
            };
            read += chunk.len();
            answer.keep(&chunk);
        }
        answer.cut = read > enough;
        Ok(())
    }
}
