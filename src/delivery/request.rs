//! What an endpoint's requests are made of.
//!
//! In two steps. What depends on the row alone is prepared once an attempt, and says there why a row can't be sent. What
//! depends on the moment, credentials and the signature with its time, is added each time the request goes out.

use bytes::Bytes;
use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue},
};
use uuid::Uuid;

use super::{
    Endpoint,
    auth::{self, Authorization},
    batch,
    body::body,
    format::{self, Secrets},
    gzip, headers, idempotency, participant,
    record::Sent,
    sign::Signer,
    target::Target,
};
use crate::{message::Delivery, trace::Propagation};

/// Makes the requests of one endpoint.
pub(super) struct Maker {
    target: Target,
    format: format::Config,
    idempotency: idempotency::Config,
    /// Headers that a row can't set here, besides those that none can set anywhere.
    taken: Vec<HeaderName>,
    secrets: Secrets,
    signer: Signer,
    /// Below which participants of sagas can answer later.
    callbacks: Option<Url>,
}

/// A request but for what depends on the moment.
pub(super) struct Prepared {
    /// The message's id, or that of the batch.
    id: Uuid,
    method: Method,
    url: Url,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

// === impl Prepared ===

impl Prepared {
    /// What of its request is a secret: not the headers that stand in the configuration.
    pub(super) fn secrets(&self, request: &Request) -> Vec<HeaderValue> {
        let sensitive = request
            .headers()
            .values()
            .filter(|value| value.is_sensitive());
        let added = sensitive.filter(|value| !self.headers.values().any(|ours| ours == *value));
        added.cloned().collect()
    }

    /// What the history may keep of its request.
    pub(super) fn sent(&self, request: &Request) -> Sent {
        Sent {
            method: request.method().clone(),
            url: request.url().clone(),
            headers: request.headers().clone(),
            body: self.body.clone(),
        }
    }
}

// === impl Maker ===

impl Maker {
    /// Reads the files that the endpoint's configuration names; the error says which one can't be used.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Maker, String> {
        let mut taken = endpoint.format.taken();
        taken.push(endpoint.idempotency.header.clone());
        if endpoint.auth != auth::Config::None {
            taken.push(AUTHORIZATION);
        }
        Ok(Maker {
            callbacks: endpoint.callbacks.clone(),
            target: Target::new(&endpoint.url),
            format: endpoint.format.clone(),
            idempotency: endpoint.idempotency.clone(),
            taken,
            secrets: Secrets::new(&endpoint.name, &endpoint.format.header_files)?,
            signer: Signer::new(&endpoint.name, &endpoint.sign)?,
        })
    }

    /// What is sent for a row, or why it can't be.
    pub(super) async fn prepare(
        &self,
        delivery: &Delivery,
        trace: Propagation,
    ) -> Result<Prepared, String> {
        let mut headers = headers::about(delivery);
        if let Some(step) = &delivery.step {
            let callbacks = self.callbacks.as_ref();
            participant::add(&mut headers, step, delivery.attempt(), callbacks);
        }
        self.idempotency.add(&mut headers, delivery);
        // What a participant of a saga gets is the same everywhere.
        let (shape, method) = match &delivery.step {
            Some(_) => (&format::Shape::Raw, &Method::POST),
            None => (&self.format.shape, &self.format.method),
        };
        let poll = delivery
            .step
            .as_deref()
            .and_then(|step| step.poll.as_deref());
        let (body, method) = match poll {
            Some(_) => (Bytes::new(), &Method::GET),
            None => (shape.body(&mut headers, delivery)?, method),
        };
        headers::add_own(&mut headers, &delivery.headers, &self.taken)?;
        headers::propagate(&mut headers, trace, &self.taken);
        headers.extend(self.format.headers.iter().cloned());
        let mut url = self.target.of(delivery)?;
        if let Some(poll) = poll {
            url = self.target.at(poll)?;
        }
        let method = method.clone();
        Ok(self.finish(delivery.id, method, url, headers, body).await)
    }

    /// What is sent for several rows of one lane. Their own headers are in their items, so none can be in the way.
    pub(super) async fn prepare_batch(
        &self,
        deliveries: &[&Delivery],
        trace: Propagation,
    ) -> Result<Prepared, String> {
        let [first, ..] = deliveries else {
            return Err("a batch has at least one message".into());
        };
        let mut headers = headers::about_batch(&first.topic, deliveries.len());
        let shape = &self.format.shape;
        let body = shape.batch(&mut headers, deliveries, &self.idempotency)?;
        headers::propagate(&mut headers, trace, &self.taken);
        headers.extend(self.format.headers.iter().cloned());
        let url = self.target.of(first)?;
        let id = batch::id(deliveries);
        let method = self.format.method.clone();
        Ok(self.finish(id, method, url, headers, body).await)
    }

    async fn finish(
        &self,
        id: Uuid,
        method: Method,
        url: Url,
        mut headers: HeaderMap,
        mut body: Bytes,
    ) -> Prepared {
        // Before the signature, which is of the bytes as they are sent.
        if self.format.compresses(&headers, &body)
            && let Some(smaller) = gzip::compressed(body.clone()).await
        {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            body = smaller;
        }
        Prepared {
            id,
            method,
            url,
            headers,
            body,
        }
    }

    /// The request as it goes out now.
    pub(super) fn request(&self, prepared: &Prepared, authorization: &Authorization) -> Request {
        let mut request = Request::new(prepared.method.clone(), prepared.url.clone());
        let headers = request.headers_mut();
        headers.clone_from(&prepared.headers);
        self.secrets.add(headers);
        if let Some(value) = &authorization.value {
            headers.insert(AUTHORIZATION, value.clone());
        }
        self.signer.sign(headers, &prepared.id, &prepared.body);
        *request.body_mut() = Some(body(prepared.body.clone()));
        request
    }
}
