//! The HTTP edge: one request, and what came of it.
//!
//! An attempt is an HTTP POST of the stored bytes; whatever happens to it is an [`Outcome`], never an error of ours, so
//! that the loop has one path for all of them. What the row adds to the request is in [`headers`], what an answer or
//! a failure means in `classify`; this file holds what needs a socket.
//!
//! The other side is not trusted: it can be slow, endless, cut off or no HTTP at all. So one deadline runs from the start
//! of the request to the last byte of the answer, of which no more than [`DRAIN`] is read and [`EXCERPT`] kept. An answer
//! that is not whole is no success, whatever its first line said: the receiver may have died after it.
//!
//! Dropping the future of an attempt closes its connection (HTTP/2: resets its stream). What the HTTP library and the
//! kernel have taken over by then may still arrive; so they are given a large body in parts, and what arrives of it is no
//! request. Otherwise a payload that has been put off, or given to another relay, could come in whole much later.

mod classify;
pub mod headers;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use reqwest::{
    Body, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, DATE, LOCATION, RETRY_AFTER},
    redirect,
};
use rustls::crypto::{CryptoProvider, ring};
use tokio::time::{Instant, timeout};
use tower::{layer::layer_fn, util::MapRequest};

use crate::{
    limit::Limits,
    message::{Class, Delivery, Outcome},
    retry,
};

/// Bytes of an answer's body that are kept at most.
pub const EXCERPT: usize = 2 * 1024;

/// Bytes of an answer's body that are read at most: the rest of a short one, so that its connection can be used again.
pub const DRAIN: usize = 64 * 1024;

/// Bytes of a request's body that the HTTP library is given at once.
const PART: usize = 64 * 1024;

/// How long a connection may lie idle before we close it.
///
/// A receiver that closes an idle connection just when a request is on its way makes that request fail, and nobody can
/// tell whether it was read. Many servers close after 5 s (Node.js, Apache, uvicorn), so we are a little earlier; those
/// that wait for longer lose nothing, since a connection that is in use every few seconds stays open anyway.
const IDLE: Duration = Duration::from_millis(4500);

/// What receivers see as `User-Agent`.
const USER_AGENT: &str = concat!("outbox-relay/", env!("CARGO_PKG_VERSION"));

/// A named HTTP destination with its own policy: the unit of isolation.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its name, by which routes, history and metrics know it.
    pub name: String,
    /// Where its deliveries are posted to; `http` or `https`.
    pub url: Url,
    /// Requests in flight at once from one relay.
    pub concurrency: usize,
    /// From the start of a request to the last byte of its answer.
    pub timeout: Duration,
    /// To be connected, TLS included.
    pub connect_timeout: Duration,
    /// How failures are tried again.
    pub retry: retry::Policy,
    /// What it may be asked to bear, over all relays together.
    pub limits: Limits,
}

/// Sends the attempts of one endpoint, over connections that no other endpoint shares.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    /// How many connections were begun so far: an attempt that began none used an old one.
    connects: Arc<AtomicU64>,
}

/// Why an endpoint can't be sent to at all: found at start, not at the first delivery.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is none that a request can be sent to.
    #[error("endpoint {endpoint}: its URL must be an http:// or https:// one with a host")]
    Url {
        /// The endpoint's name.
        endpoint: String,
    },
    /// TLS can't be set up, for want of trusted authorities for instance.
    #[error("endpoint {endpoint}: cannot set up its HTTP client")]
    Setup {
        /// The endpoint's name.
        endpoint: String,
        /// What the HTTP library says.
        source: reqwest::Error,
    },
}

/// The rest of a large body. Not copied: the parts share the stored bytes.
struct Parts(Bytes);

/// What has been seen of an answer so far. It outlives the request, so that a deadline does not take it away.
#[derive(Default)]
struct Answer {
    status: Option<StatusCode>,
    location: Option<String>,
    retry_after: Option<Duration>,
    /// How many bytes its body said to have, where it ended before.
    promised: Option<u64>,
    /// Up to three bytes longer than [`EXCERPT`], so that a character that crosses the limit is seen whole.
    body: Vec<u8>,
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
        install_tls();
        // What reqwest would refuse at the first request would kill that row, and the next, as if they were at fault.
        let secure = match endpoint.url.scheme() {
            "http" => Some(false),
            "https" => Some(true),
            _ => None,
        };
        let (Some(secure), Ok(_)) = (secure, endpoint.url.as_str().parse::<hyper::Uri>()) else {
            return Err(ClientError::Url {
                endpoint: endpoint.name.clone(),
            });
        };
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            // A page that answers 200 somewhere else is no delivery; and a key sent there would be given away.
            .redirect(redirect::Policy::none())
            .referer(false)
            // A variable of the environment must not decide where payloads go.
            .no_proxy()
            // The excerpt is what was sent. Unpacked, a few kilobytes can be gigabytes.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .tcp_nodelay(true)
            .connect_timeout(endpoint.connect_timeout)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(endpoint.concurrency);
        // reqwest's default retry policy stays. It sends again only what an HTTP/2 receiver says it has not looked at
        // (REFUSED_STREAM, or a GOAWAY without an error that names an earlier stream), at most twice and within the same
        // deadline. Every deployment of a receiver sends such a GOAWAY: without this it would cost attempts. (A body in
        // parts can't be sent again by it: that one does cost an attempt.)
        if !secure {
            // Redirects are not followed, so no certificate is ever looked at: http works in an image without any, and
            // nobody waits for a hundred of them to be parsed.
            builder = builder.tls_certs_only([]);
        }
        let connects = Arc::new(AtomicU64::new(0));
        let counted = connects.clone();
        let http = builder
            .connector_layer(layer_fn(move |connector| {
                let counted = counted.clone();
                MapRequest::new(connector, move |target| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    target
                })
            }))
            .build()
            .map_err(|source| ClientError::Setup {
                endpoint: endpoint.name.clone(),
                source,
            })?;
        Ok(Client {
            http,
            url: endpoint.url.clone(),
            timeout: endpoint.timeout,
            connects,
        })
    }

    /// Sends one request and says what came of it.
    ///
    /// A receiver may close an idle connection at the moment a request is sent on it. So a request that is reset before
    /// any byte of its answer, on a connection that was used before, is sent once more at once: same key, same attempt,
    /// same deadline.
    pub async fn attempt(&self, delivery: &Delivery) -> Outcome {
        let started = Instant::now();
        let mut answer = Answer::default();
        let (class, error) = match self.request(delivery) {
            Err(error) => (Class::Unsendable, Some(classify::line(&error))),
            Ok(request) => {
                match timeout(
                    self.timeout,
                    self.exchange_again(request, delivery, &mut answer),
                )
                .await
                {
                    Ok(Ok(())) => answer.whole(),
                    Ok(Err(error)) => answer.broken(error),
                    Err(_elapsed) => answer.late(self.timeout),
                }
            }
        };
        Outcome {
            class,
            status: answer.status.map(|status| status.as_u16()),
            error,
            response: excerpt(&answer.body),
            retry_after: answer.retry_after,
            duration: started.elapsed(),
        }
    }

    fn request(&self, delivery: &Delivery) -> Result<RequestBuilder, String> {
        let headers = headers::build(delivery)?;
        let own_credentials = !self.url.username().is_empty() || self.url.password().is_some();
        if own_credentials && headers.contains_key(AUTHORIZATION) {
            // To choose would be to act in somebody else's name.
            return Err(
                "header \"authorization\": the endpoint's URL has credentials of its own".into(),
            );
        }
        let body = delivery.body.clone().unwrap_or_default();
        let body = if body.len() > PART {
            Body::wrap(Parts(body))
        } else {
            Body::from(body)
        };
        let request = self.http.post(self.url.clone());
        Ok(request.headers(headers).body(body))
    }

    async fn exchange_again(
        &self,
        request: RequestBuilder,
        delivery: &Delivery,
        answer: &mut Answer,
    ) -> Result<(), reqwest::Error> {
        let connects = self.connects.load(Ordering::Relaxed);
        let result = self.exchange(request, answer).await;
        // With a connection begun meanwhile, by this attempt or its neighbours, it may have been a new one.
        let reused = self.connects.load(Ordering::Relaxed) == connects;
        let Err(error) = result else { return Ok(()) };
        if !reused || answer.status.is_some() || !classify::is_reset(&error) {
            return Err(error);
        }
        match self.request(delivery) {
            Ok(again) => self.exchange(again, answer).await,
            // It was built a moment ago.
            Err(_) => Err(error),
        }
    }

    async fn exchange(
        &self,
        request: RequestBuilder,
        answer: &mut Answer,
    ) -> Result<(), reqwest::Error> {
        let mut response = request.send().await?;
        answer.head(&response, &self.url);
        let length = response.content_length();
        // A body that says it is longer takes its connection with it in any case.
        let enough = match length {
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
            let room = (EXCERPT + 3 - answer.body.len()).min(chunk.len());
            answer.body.extend_from_slice(&chunk[..room]);
        }
        Ok(())
    }
}

// === impl Parts ===

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.0.len().min(PART);
        let part = (size > 0).then(|| Ok(Frame::data(self.0.split_to(size))));
        Poll::Ready(part)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    /// Exact, so that it is sent with a length and not in chunks, which some servers refuse.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

// === impl Answer ===

impl Answer {
    fn head(&mut self, response: &Response, url: &Url) {
        let status = response.status();
        let header = |name| {
            response
                .headers()
                .get(name)
                .map(reqwest::header::HeaderValue::as_bytes)
        };
        self.status = Some(status);
        if status.is_redirection() {
            self.location = header(LOCATION).map(|value| classify::location(url, value));
        }
        // After a 2xx it speaks of what the receiver does next, not of us.
        if !status.is_success() {
            self.retry_after =
                header(RETRY_AFTER).and_then(|value| classify::retry_after(value, header(DATE)));
        }
    }

    /// All that came of the answer is there.
    fn whole(&self) -> (Class, Option<String>) {
        if let (Some(line), Some(promised)) = (self.first_line(), self.promised) {
            let text = format!("{line}, but its body ended before its {promised} bytes");
            return (Class::Reset, Some(classify::line(&text)));
        }
        let class = match self.status {
            Some(status) => classify::status(status.as_u16()),
            None => Class::Protocol,
        };
        let error = (class != Class::Success).then(|| self.first_line().unwrap_or_default());
        (class, error)
    }

    /// It broke, before or after its first line.
    fn broken(&self, error: reqwest::Error) -> (Class, Option<String>) {
        let (class, text) = classify::error(error);
        let text = match self.first_line() {
            Some(line) => classify::line(&format!("{line}, but its body broke off: {text}")),
            None => text,
        };
        (class, Some(text))
    }

    /// The deadline was faster.
    fn late(&self, timeout: Duration) -> (Class, Option<String>) {
        let text = match self.first_line() {
            Some(line) => format!("{line}, but its body was not finished within {timeout:?}"),
            None => format!("no answer within {timeout:?}"),
        };
        (Class::Timeout, Some(classify::line(&text)))
    }

    fn first_line(&self) -> Option<String> {
        let status = self.status?;
        let mut line = format!("HTTP {}", status.as_u16());
        if let Some(reason) = status.canonical_reason() {
            line.push(' ');
            line.push_str(reason);
        }
        if let Some(location) = &self.location {
            line.push_str(", Location: ");
            line.push_str(location);
        }
        Some(classify::line(&line))
    }
}

/// What can be stored of a body: valid UTF-8 without NUL, cut at [`EXCERPT`] bytes on a character boundary.
///
/// A replacement is never shorter than what it stands for. So what a cut in the middle of a character leaves behind,
/// among the last three bytes of a body that is longer than the limit, lies beyond it here too.
fn excerpt(body: &[u8]) -> Option<String> {
    if body.is_empty() {
        return None;
    }
    let mut text = String::from_utf8_lossy(body).replace('\0', "\u{FFFD}");
    text.truncate(text.floor_char_boundary(EXCERPT));
    Some(text)
}
