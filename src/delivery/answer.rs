//! What has been seen of an answer, and what that comes to: pure.

use std::{sync::Arc, time::Duration};

use reqwest::{
    Response, StatusCode, Url,
    header::{DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
};

use super::{DRAIN, EXCERPT, batch::RESULTS, classify, record::Sent, redact::Redactor};
use crate::{
    message::{Class, Exchange, Poll},
    saga::{self, Step},
};

/// What has been seen of an answer so far. It outlives the request, so that a deadline does not take it away.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) status: Option<StatusCode>,
    pub(super) location: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// Whether we are still waiting for a token to ask with.
    pub(super) awaits_token: bool,
    /// What this host lacks for a connection, while we wait for it.
    pub(super) exhausted: Option<String>,
    /// How many bytes its body said to have, where it ended before.
    pub(super) promised: Option<u64>,
    /// Whether its body may have results for the messages of a batch: then that much of it is kept.
    pub(super) results: bool,
    /// Whether its body may be the output of a step: then as much of it is kept as an output may have.
    pub(super) output: bool,
    /// Where a step that was taken on (202) can be asked for.
    pub(super) poll: Option<Arc<Poll>>,
    /// The request, if the history may keep something of it.
    pub(super) sent: Option<Sent>,
    /// The answer's headers.
    pub(super) received: Option<HeaderMap>,
    /// What of the request is a secret: a receiver that sends back what it got must not bring it into the history.
    pub(super) secrets: Vec<HeaderValue>,
    /// More of its body came than is read.
    pub(super) cut: bool,
    /// Up to three bytes longer than [`EXCERPT`], so that a character that crosses the limit is seen whole; or all that
    /// may be read of results.
    pub(super) body: Vec<u8>,
}

// === impl Answer ===

impl Answer {
    /// Its first line and headers are there.
    pub(super) fn head(&mut self, response: &mut Response) {
        let status = response.status();
        let header = |name: HeaderName| response.headers().get(name).map(HeaderValue::as_bytes);
        self.status = Some(status);
        if status.is_redirection() {
            self.location = header(LOCATION).map(|value| classify::location(response.url(), value));
        }
        if self.output && status == StatusCode::ACCEPTED {
            let after =
                header(RETRY_AFTER).and_then(|value| classify::retry_after(value, header(DATE)));
            let place = header(LOCATION).and_then(|value| place(response.url(), value));
            self.poll = place.map(|place| Arc::new(Poll { place, after }));
        }
        // After a 2xx it speaks of what the receiver does next, not of us.
        if !status.is_success() {
            self.retry_after =
                header(RETRY_AFTER).and_then(|value| classify::retry_after(value, header(DATE)));
        }
        // Nobody reads them from there any more.
        self.received = Some(std::mem::take(response.headers_mut()));
    }

    /// The next bytes of its body, as far as they are kept.
    pub(super) fn keep(&mut self, chunk: &[u8]) {
        let most = match self.has_results() {
            true => RESULTS,
            false if self.output => DRAIN,
            false => EXCERPT + 3,
        };
        let room = (most - self.body.len()).min(chunk.len());
        self.body.extend_from_slice(&chunk[..room]);
    }

    /// Whether its body is to be read for results.
    pub(super) fn has_results(&self) -> bool {
        self.results && self.status.is_some_and(|status| status.is_success())
    }

    /// All that came of the answer, perhaps to a step of a saga, is there.
    pub(super) fn whole(&self, step: Option<&Step>) -> (Class, Option<String>) {
        if let (Some(line), Some(promised)) = (self.first_line(), self.promised) {
            let text = format!("{line}, but its body ended before its {promised} bytes");
            return (Class::Reset, Some(classify::line(&text)));
        }
        let class = match self.status {
            Some(status) if step.is_some_and(|step| step.is_done_by(status.as_u16())) => {
                Class::Success
            }
            // The endpoint is not concerned by what became of one of its jobs.
            Some(StatusCode::GONE) if step.is_some_and(|step| step.poll.is_some()) => {
                Class::Misconfigured
            }
            Some(status) => classify::status(status.as_u16()),
            None => Class::Protocol,
        };
        let error = (class != Class::Success).then(|| self.first_line().unwrap_or_default());
        (class, error)
    }

    /// It broke, before or after its first line; `proxied`: on a way through a proxy.
    pub(super) fn broken(&self, error: reqwest::Error, proxied: bool) -> (Class, Option<String>) {
        let (class, text) = classify::error(error, proxied);
        let text = match self.first_line() {
            Some(line) => classify::line(&format!("{line}, but its body broke off: {text}")),
            None => text,
        };
        (class, Some(text))
    }

    /// There was no token for it, or none but the one that it refused.
    pub(super) fn refused(&self, class: Class, text: &str) -> (Class, Option<String>) {
        let text = match self.first_line() {
            Some(line) => format!("{line}, and {text}"),
            None => text.to_owned(),
        };
        (class, Some(classify::line(&text)))
    }

    /// The deadline was faster.
    pub(super) fn late(&self, timeout: Duration) -> (Class, Option<String>) {
        if let Some(text) = &self.exhausted {
            let text = format!("no connection within {timeout:?}: {text}");
            return (Class::Exhausted, Some(classify::line(&text)));
        }
        let text = match self.first_line() {
            Some(line) => format!("{line}, but its body was not finished within {timeout:?}"),
            None if self.awaits_token => format!("no access token within {timeout:?}"),
            None => format!("no answer within {timeout:?}"),
        };
        (Class::Timeout, Some(classify::line(&text)))
    }

    /// Its first line, as an error shows it.
    pub(super) fn first_line(&self) -> Option<String> {
        let status = self.status?;
        let mut line = status_line(status.as_u16());
        if let Some(location) = &self.location {
            line.push_str(", Location: ");
            line.push_str(location);
        }
        Some(classify::line(&line))
    }

    /// Hides what came back of the request's secrets.
    pub(super) fn redactor(&self) -> Redactor {
        Redactor::new(&self.secrets)
    }

    /// What the history keeps of the request, if there was one, and of the answer.
    pub(super) async fn exchange(&mut self, redactor: &Redactor) -> Option<Arc<Exchange>> {
        let received = self.received.take();
        Some(self.sent.take()?.exchange(received, redactor).await)
    }

    /// The output of a step that is done.
    pub(super) fn output(&self) -> Option<Arc<str>> {
        let whole = self.output && !self.cut;
        let text = saga::output(&self.body).filter(|_| whole)?;
        Some(text.into())
    }

    /// What its body begins with.
    pub(super) fn excerpt(&self) -> Option<String> {
        excerpt(&self.body)
    }
}

/// A place at the receiver itself: what is asked there has the headers and the credentials of its endpoint.
fn place(base: &Url, value: &[u8]) -> Option<String> {
    let url = base.join(std::str::from_utf8(value).ok()?).ok()?;
    let here =
        url.origin() == base.origin() && url.username().is_empty() && url.password().is_none();
    (here && url.as_str().len() <= 2000).then(|| url.into())
}

/// A status with its name, if it has one.
pub(super) fn status_line(status: u16) -> String {
    let known = StatusCode::from_u16(status).ok();
    match known.and_then(|status| status.canonical_reason()) {
        Some(reason) => format!("HTTP {status} {reason}"),
        None => format!("HTTP {status}"),
    }
}

/// What can be stored of a body, but for the secrets in it: valid UTF-8 without NUL, cut at [`EXCERPT`] bytes on a character boundary.
///
/// A replacement is never shorter than what it stands for. So what a cut in the middle of a character leaves behind,
/// among the last three bytes of a body that is longer than the limit, lies beyond it here too.
pub(super) fn excerpt(body: &[u8]) -> Option<String> {
    if body.is_empty() {
        return None;
    }
    let body = &body[..body.len().min(EXCERPT + 3)];
    let mut text = String::from_utf8_lossy(body).replace('\0', "\u{FFFD}");
    text.truncate(text.floor_char_boundary(EXCERPT));
    Some(text)
}
