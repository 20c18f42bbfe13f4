//! A destination, as the configuration has it.

use std::{fmt, time::Duration};

use reqwest::Url;

use super::{Details, auth, batch, format, guard, idempotency, proxy, sign, target, tls};
use crate::{limit::Limits, retry};

/// A named HTTP destination with its own policy: the unit of isolation.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its name, by which routes, history and metrics know it.
    pub name: String,
    /// Where its deliveries go; `http` or `https`. Path and query may have [`target::FIELDS`] in braces.
    pub url: Url,
    /// Requests in flight at once from one relay.
    pub concurrency: usize,
    /// From the start of a request to the last byte of its answer.
    pub timeout: Duration,
    /// To be connected, TLS included.
    pub connect_timeout: Duration,
    /// Which HTTP it speaks.
    pub http_version: HttpVersion,
    /// How failures are tried again.
    pub retry: retry::Policy,
    /// What it may be asked to bear, over all relays together.
    pub limits: Limits,
    /// The secrets that its requests are signed with.
    pub sign: sign::Config,
    /// Whom it is trusted by and what it is shown, over TLS.
    pub tls: tls::Config,
    /// How its requests look.
    pub format: format::Config,
    /// Who we are to it.
    pub auth: auth::Config,
    /// How it is told a message's key.
    pub idempotency: idempotency::Config,
    /// Which addresses it may have.
    pub guard: guard::Config,
    /// What its requests go through.
    pub proxy: Option<proxy::Config>,
    /// How many messages go in one request; `None`: each has its own.
    pub batch: Option<batch::Config>,
    /// What the history keeps of its requests and answers, beside their outcomes.
    pub details: Details,
    /// Its attempts are spans of the trace that a row belongs to; otherwise the row's headers are sent as they are.
    pub trace: bool,
    /// Where participants of sagas reach this relay's API, to answer asynchronous steps later.
    pub callbacks: Option<Url>,
}

/// Which version of HTTP an endpoint is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/2 where the receiver offers it with the TLS handshake (ALPN), HTTP/1.1 otherwise.
    #[default]
    Negotiated,
    /// HTTP/1.1 whatever is offered.
    Http1,
    /// HTTP/2 from the first byte, without TLS too ("prior knowledge").
    Http2,
}

// === impl Endpoint ===

impl Endpoint {
    /// An endpoint with the default of every other setting.
    pub fn new(name: impl Into<String>, url: Url) -> Endpoint {
        Endpoint {
            name: name.into(),
            url,
            concurrency: 64,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            http_version: HttpVersion::default(),
            retry: retry::Policy::default(),
            limits: Limits::default(),
            sign: sign::Config::default(),
            tls: tls::Config::default(),
            format: format::Config::default(),
            auth: auth::Config::default(),
            idempotency: idempotency::Config::default(),
            guard: guard::Config::default(),
            proxy: None,
            batch: None,
            details: Details::default(),
            trace: true,
            callbacks: None,
        }
    }

    /// How many messages may be in flight at once from one relay.
    pub fn messages(&self) -> usize {
        let each = self.batch.as_ref().map_or(1, |batch| batch.messages);
        self.concurrency.saturating_mul(each)
    }

    /// Whether any of its connections has TLS.
    pub fn is_secure(&self) -> bool {
        let token = match &self.auth {
            auth::Config::None | auth::Config::Bearer { .. } | auth::Config::Basic { .. } => None,
            auth::Config::OAuth2(config) => Some(&config.token_url),
        };
        let proxy = self.proxy.as_ref().map(|proxy| &proxy.url);
        [Some(&self.url), token, proxy]
            .into_iter()
            .flatten()
            .any(|url| url.scheme() == "https")
    }

    /// Method and URL, whether the guard watches over where they lead, and the proxy between, for people.
    pub fn shown(&self) -> String {
        let request = target::show(&self.format.method, &self.url);
        let through = self.proxy.as_ref().map_or_else(String::new, |proxy| {
            let origin = proxy.url.origin().ascii_serialization();
            format!(", through the proxy {origin}")
        });
        format!("{request} (guard {}{through})", self.guard)
    }

    /// What a span tells of its URL: nothing that may be a secret, and no field of a row.
    pub fn traced_url(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }

    /// What may go wrong although all of it is allowed; `show` writes a duration.
    pub fn warnings(
        &self,
        retry: &retry::Policy,
        show: impl Fn(Duration) -> String,
    ) -> Vec<String> {
        let longest = retry.window().longest;
        self.idempotency
            .warning(longest, show)
            .into_iter()
            .collect()
    }
}

// === impl HttpVersion ===

impl fmt::Display for HttpVersion {
    /// As the configuration says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HttpVersion::Negotiated => "negotiated",
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
        })
    }
}
