//! What a request looks like: method, body and the headers that an endpoint always gets.
//!
//! `raw` sends the stored bytes. The two CloudEvents formats say in the standard's words what a row's columns say in ours,
//! beside the bytes or around them.

mod cloudevents;
mod items;
mod json;

use std::path::PathBuf;

use bytes::Bytes;
use reqwest::{
    Method,
    header::{CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue},
};

use super::{auth, file::Watched, headers, idempotency};
use crate::message::Delivery;

/// How an endpoint's requests look.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The method of every request.
    pub method: Method,
    /// How the body is made of the stored bytes.
    pub shape: Shape,
    /// Headers that every request has; marked as sensitive, so that no `Debug` shows a value.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The same, each from a file that is read again when it changes.
    pub header_files: Vec<(HeaderName, PathBuf)>,
    /// Bodies with more bytes are compressed.
    pub gzip_above: Option<usize>,
}

/// How a body is made of the stored bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// They are the body.
    #[default]
    Raw,
    /// They are the body, and headers hold the attributes of an event in CloudEvents.
    Binary {
        /// The event's `source`: a URI reference.
        source: String,
    },
    /// They are in a JSON object with the attributes of an event in CloudEvents.
    Structured {
        /// The event's `source`: a URI reference.
        source: String,
    },
}

/// Headers whose values come from files.
pub(super) struct Secrets(Vec<(HeaderName, Watched<HeaderValue>)>);

// === impl Config ===

impl Default for Config {
    fn default() -> Config {
        Config {
            method: Method::POST,
            shape: Shape::default(),
            headers: Vec::new(),
            header_files: Vec::new(),
            gzip_above: None,
        }
    }
}

impl Config {
    /// Whether this body is to be compressed; not if it is in some encoding already.
    pub(super) fn compresses(&self, headers: &HeaderMap, body: &Bytes) -> bool {
        self.gzip_above.is_some_and(|most| body.len() > most)
            && !headers.contains_key(CONTENT_ENCODING)
    }

    /// The headers that a row can't set, because the endpoint does.
    pub(super) fn taken(&self) -> Vec<HeaderName> {
        let fixed = self.headers.iter().map(|(name, _)| name);
        let secret = self.header_files.iter().map(|(name, _)| name);
        let mut taken: Vec<HeaderName> = fixed.chain(secret).cloned().collect();
        match self.shape {
            Shape::Raw => {}
            Shape::Binary { .. } | Shape::Structured { .. } => taken.extend(cloudevents::NAMES),
        }
        taken
    }
}

// === impl Shape ===

impl Shape {
    /// The body of a request, and the headers that say what it is.
    pub(super) fn body(
        &self,
        headers: &mut HeaderMap,
        delivery: &Delivery,
    ) -> Result<Bytes, String> {
        let stored = || delivery.body.clone().unwrap_or_default();
        match self {
            Shape::Raw => {
                headers::add_content(headers, delivery)?;
                Ok(stored())
            }
            Shape::Binary { source } => {
                headers::add_content(headers, delivery)?;
                cloudevents::add(headers, delivery, source);
                Ok(stored())
            }
            Shape::Structured { source } => cloudevents::wrap(headers, delivery, source),
        }
    }

    /// The body of a request with several messages, and the header that says what it is. `idempotency` says whether the
    /// messages show their keys.
    pub(super) fn batch(
        &self,
        headers: &mut HeaderMap,
        deliveries: &[&Delivery],
        idempotency: &idempotency::Config,
    ) -> Result<Bytes, String> {
        let key = |delivery: &Delivery| idempotency.in_body(delivery);
        match self {
            Shape::Raw => Ok(items::batch(headers, deliveries, key)),
            // An endpoint that is set up so is refused; this is the second wall.
            Shape::Binary { .. } => Err("binary CloudEvents know no batches".into()),
            Shape::Structured { source } => {
                Ok(cloudevents::batch(headers, deliveries, source, key))
            }
        }
    }
}

// === impl Secrets ===

impl Secrets {
    /// Reads the files; the error names the one that can't be used.
    pub(super) fn new(endpoint: &str, files: &[(HeaderName, PathBuf)]) -> Result<Secrets, String> {
        let mut all = Vec::new();
        for (name, path) in files {
            let file = Watched::new(endpoint, vec![path.clone()], |contents| {
                // Blanks around a value are not part of it; in HTTP/2 they would make the request malformed.
                let value = contents[0].line()?.trim_matches([' ', '\t']);
                if value.is_empty() {
                    return Err(contents[0].wrong("is empty"));
                }
                auth::secret(&contents[0], value)
            });
            let file = file.map_err(|error| format!("header_files.{name}: {error}"))?;
            all.push((name.clone(), file));
        }
        Ok(Secrets(all))
    }

    /// Adds the values of now.
    pub(super) fn add(&self, headers: &mut HeaderMap) {
        for (name, file) in &self.0 {
            headers.insert(name.clone(), HeaderValue::clone(&file.current()));
        }
    }
}
