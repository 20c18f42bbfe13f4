//! What an endpoint's requests are made of.
//!
//! In two steps. What depends on the row alone is prepared once an attempt, and says there why a row can't be sent. What
//! depends on the moment, credentials and the signature with its time, is added each time the request goes out.

use bytes::Bytes;
use reqwest::{
    RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName},
};

use super::{Endpoint, auth::Auth, body::body, headers, idempotency, sign::Signer};
use crate::message::Delivery;

/// Makes the requests of one endpoint.
pub(super) struct Maker {
    url: Url,
    idempotency: idempotency::Config,
    auth: Auth,
    signer: Signer,
    /// Headers that a row can't set here, besides those that none can set anywhere.
    taken: Vec<HeaderName>,
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
        let mut taken = vec![endpoint.idempotency.header.clone()];
        let auth = Auth::new(&endpoint.name, &endpoint.auth)?;
        let in_url = !endpoint.url.username().is_empty() || endpoint.url.password().is_some();
        if auth.is_some() || in_url {
            taken.push(AUTHORIZATION);
        }
        Ok(Maker {
            url: endpoint.url.clone(),
            idempotency: endpoint.idempotency.clone(),
            auth,
            signer: Signer::new(&endpoint.name, &endpoint.sign)?,
            taken,
        })
    }

    /// What is sent for a row, or why it can't be.
    pub(super) fn prepare(&self, delivery: &Delivery) -> Result<Prepared, String> {
        let mut headers = headers::about(delivery);
        self.idempotency.add(&mut headers, delivery);
        headers::add_content(&mut headers, delivery)?;
        headers::add_own(&mut headers, &delivery.headers, &self.taken)?;
        Ok(Prepared {
            id: delivery.id.hyphenated().to_string(),
            headers,
            body: delivery.body.clone().unwrap_or_default(),
        })
    }

    /// The request as it goes out now.
    pub(super) fn request(&self, http: &reqwest::Client, prepared: &Prepared) -> RequestBuilder {
        let mut headers = prepared.headers.clone();
        if let Some(value) = self.auth.authorization() {
            headers.insert(AUTHORIZATION, value);
        }
        self.signer.sign(&mut headers, &prepared.id, &prepared.body);
        http.post(self.url.clone())
            .headers(headers)
            .body(body(prepared.body.clone()))
    }
}
