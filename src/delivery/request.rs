//! What an endpoint's requests are made of.
//!
//! In two steps. What depends on the row alone is prepared once an attempt, and says there why a row can't be sent. What
//! depends on the moment, the signature with its time, is added each time the request goes out.

use bytes::Bytes;
use reqwest::{
    RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderMap},
};

use super::{Endpoint, body::body, headers, sign::Signer};
use crate::message::Delivery;

/// Makes the requests of one endpoint.
pub(super) struct Maker {
    url: Url,
    signer: Signer,
}

/// A request but for what depends on the moment.
pub(super) struct Prepared {
    /// The message's id.
    id: String,
    headers: HeaderMap,
    body: Bytes,
}

// === impl Maker ===

impl Maker {
    /// Reads the files that the endpoint's configuration names; the error says which one can't be used.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Maker, String> {
        Ok(Maker {
            url: endpoint.url.clone(),
            signer: Signer::new(&endpoint.name, &endpoint.sign)?,
        })
    }

    /// What is sent for a row, or why it can't be.
    pub(super) fn prepare(&self, delivery: &Delivery) -> Result<Prepared, String> {
        let headers = headers::build(delivery)?;
        let own_credentials = !self.url.username().is_empty() || self.url.password().is_some();
        if own_credentials && headers.contains_key(AUTHORIZATION) {
            // To choose would be to act in somebody else's name.
            return Err(
                "header \"authorization\": the endpoint's URL has credentials of its own".into(),
            );
        }
        Ok(Prepared {
            id: delivery.id.hyphenated().to_string(),
            headers,
            body: delivery.body.clone().unwrap_or_default(),
        })
    }

    /// The request as it goes out now.
    pub(super) fn request(&self, http: &reqwest::Client, prepared: &Prepared) -> RequestBuilder {
        let mut headers = prepared.headers.clone();
        self.signer.sign(&mut headers, &prepared.id, &prepared.body);
        http.post(self.url.clone())
            .headers(headers)
            .body(body(prepared.body.clone()))
    }
}
