//! What the fuzz targets in `tests/fuzz` see of this module's insides. Only `cargo fuzz` compiles it.
//!
//! Each function does what an attempt does, from what comes from outside to what is made of it, without a socket.

use std::{fs, path::PathBuf, time::Duration};

use bytes::Bytes;
use hyper::http::response;
use reqwest::{
    Body, Request, Response, ResponseBuilderExt, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::{
    Client, ClientError, DRAIN, Endpoint,
    answer::{self, Answer},
    auth::{Auth, oauth2},
    batch::{self, Answered, RESULTS},
    classify,
    file::Content,
    format::Secrets,
    sign::Signer,
    target::Target,
    tls,
};
use crate::message::{Delivery, Outcome};

/// What an answer with this status, these headers and this body comes to, for the messages of a batch where there are any.
///
/// `None`: no HTTP answer has such a status or header.
pub fn answered(
    url: &Url,
    status: u16,
    headers: &[(&[u8], &[u8])],
    chunks: &[&[u8]],
    deliveries: &[&Delivery],
) -> Option<Answered> {
    let mut response = response::Builder::new().status(status).url(url.clone());
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let mut response: Response = response.body(Body::default()).ok()?.into();
    let mut answer = Answer {
        results: !deliveries.is_empty(),
        ..Answer::default()
    };
    answer.head(&mut response);
    let enough = if answer.has_results() { RESULTS } else { DRAIN };
    let mut read = 0;
    for chunk in chunks {
        read += chunk.len();
        answer.keep(chunk);
    }
    answer.cut = read > enough;
    let (class, error) = answer.whole();
    let whole = Outcome {
        class,
        status: Some(status),
        error,
        response: answer.excerpt(),
        retry_after: answer.retry_after,
        duration: Duration::ZERO,
        exchange: None,
        output: None,
        poll: None,
    };
    Some(match deliveries {
        [] => Answered { whole, each: None },
        _ => batch::answered(whole, &answer, deliveries),
    })
}

/// What is kept of a body, and of an error's text.
pub fn cut(body: &[u8], text: &str) -> (Option<String>, String) {
    (answer::excerpt(body), classify::line(text))
}

/// The header and the life of the token that an answer grants.
///
/// # Errors
///
/// Why it grants none.
pub fn granted(body: &[u8]) -> Result<(HeaderValue, Option<Duration>), &'static str> {
    oauth2::granted(body)
}

/// Where a row goes.
///
/// # Errors
///
/// Why it goes nowhere.
pub fn target(url: &Url, delivery: &Delivery) -> Result<Url, String> {
    Target::new(url).of(delivery)
}

/// Makes the requests of one endpoint and sends none.
pub struct Requests(Client);

impl Requests {
    /// For this endpoint.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(endpoint: &Endpoint) -> Result<Requests, ClientError> {
        Client::new(endpoint).map(Requests)
    }

    /// The request for these messages, and its body: as a batch where the endpoint has batches.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn of(
        &self,
        deliveries: &[&Delivery],
        batch: bool,
    ) -> Result<(Request, Bytes), String> {
        let Client(inner) = &self.0;
        let prepared = match deliveries {
            [delivery] if !batch => {
                inner
                    .maker
                    .prepare(delivery, crate::trace::Propagation::Untouched)
                    .await
            }
            _ => {
                inner
                    .maker
                    .prepare_batch(deliveries, crate::trace::Propagation::Untouched)
                    .await
            }
        }?;
        let authorization = inner.auth.authorization(&inner.http.current()).await;
        let authorization = authorization.map_err(|failure| failure.text)?;
        let request = inner.maker.request(&prepared, &authorization);
        Ok((request, prepared.body))
    }
}

/// The headers that come of the files that an endpoint names: its credentials, its secret headers, its signature of `body`.
///
/// # Errors
///
/// Which file can't be used.
pub fn secrets(endpoint: &Endpoint, body: &[u8]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let auth = Auth::new("fuzz", &endpoint.auth, false)?;
    if let Auth::File(file) = &auth {
        let value = HeaderValue::clone(&file.current());
        headers.insert(HeaderName::from_static("authorization"), value);
    }
    Secrets::new("fuzz", &endpoint.format.header_files)?.add(&mut headers);
    let signer = Signer::new("fuzz", &endpoint.sign)?;
    signer.sign(&mut headers, &uuid::Uuid::nil(), body);
    Ok(headers)
}

/// Reads the authorities and the client certificate of an endpoint as a connection does.
///
/// # Errors
///
/// Which file can't be used.
pub fn certificates(config: &tls::Config) -> Result<(), String> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        Ok(Content { path, text })
    };
    let files: Result<Vec<Content>, String> = config.files().into_iter().map(read).collect();
    tls::apply(config, reqwest::Client::builder(), &files?).map(drop)
}
