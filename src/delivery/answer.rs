//! What has been seen of an answer, and what that comes to: pure.

use std::time::Duration;

use reqwest::{
    Response, StatusCode,
    header::{DATE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
};

use super::{EXCERPT, batch::RESULTS, classify};
use crate::message::Class;

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
    pub(super) fn head(&mut self, response: &Response) {
        let status = response.status();
        let header = |name: HeaderName| response.headers().get(name).map(HeaderValue::as_bytes);
        self.status = Some(status);
        if status.is_redirection() {
            self.location = header(LOCATION).map(|value| classify::location(response.url(), value));
        }
        // After a 2xx it speaks of what the receiver does next, not of us.
        if !status.is_success() {
            self.retry_after =
                header(RETRY_AFTER).and_then(|value| classify::retry_after(value, header(DATE)));
        }
    }

    /// Takes what came back of the request's secrets out of all that is kept. A secret that is cut off at the end goes too.
    pub(super) fn redact(&mut self) {
        for secret in std::mem::take(&mut self.secrets) {
            let whole = secret.as_bytes();
            // `Bearer token` and `Basic pair` are known by their last word, whatever stands before it there.
            let word = whole.rsplit(|byte| *byte == b' ').next().unwrap_or(whole);
            hide(&mut self.body, word);
            if let Some(location) = &mut self.location {
                let mut bytes = std::mem::take(location).into_bytes();
                hide(&mut bytes, word);
                *location = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    }

    /// The next bytes of its body, as far as they are kept.
    pub(super) fn keep(&mut self, chunk: &[u8]) {
        let most = match self.has_results() {
            true => RESULTS,
            false => EXCERPT + 3,
        };
        let room = (most - self.body.len()).min(chunk.len());
        self.body.extend_from_slice(&chunk[..room]);
    }

    /// Whether its body is to be read for results.
    pub(super) fn has_results(&self) -> bool {
        self.results && self.status.is_some_and(|status| status.is_success())
    }

    /// All that came of the answer is there.
    pub(super) fn whole(&self) -> (Class, Option<String>) {
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

    /// What can be stored of its body.
    pub(super) fn excerpt(&self) -> Option<String> {
        excerpt(&self.body)
    }
}

/// Shorter ones stand in texts by chance.
const SECRET: usize = 4;

/// Replaces each place where a secret stands, and what its end may have been cut from.
fn hide(text: &mut Vec<u8>, secret: &[u8]) {
    const INSTEAD: &[u8] = b"[redacted]";
    if secret.len() < SECRET {
        return;
    }
    let mut from = 0;
    while let Some(at) = text[from..]
        .windows(secret.len())
        .position(|part| part == secret)
    {
        let at = from + at;
        text.splice(at..at + secret.len(), INSTEAD.iter().copied());
        from = at + INSTEAD.len();
    }
    let cut = (SECRET..secret.len())
        .rev()
        .find(|&length| text.ends_with(&secret[..length]));
    if let Some(length) = cut {
        text.truncate(text.len() - length);
        text.extend_from_slice(INSTEAD);
    }
}

/// A status with its name, if it has one.
pub(super) fn status_line(status: u16) -> String {
    let known = StatusCode::from_u16(status).ok();
    match known.and_then(|status| status.canonical_reason()) {
        Some(reason) => format!("HTTP {status} {reason}"),
        None => format!("HTTP {status}"),
    }
}

/// What can be stored of a body: valid UTF-8 without NUL, cut at [`EXCERPT`] bytes on a character boundary.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(body: &[u8], secrets: &[&'static str]) -> String {
        let mut answer = Answer {
            body: body.to_vec(),
            location: Some(String::from_utf8_lossy(body).into_owned()),
            secrets: secrets
                .iter()
                .map(|secret| HeaderValue::from_static(secret))
                .collect(),
            ..Answer::default()
        };
        answer.redact();
        let text = answer.excerpt().unwrap_or_default();
        assert_eq!(answer.location.unwrap(), text);
        text
    }

    #[test]
    fn what_comes_back_of_a_secret_is_not_kept() {
        let secrets = ["Bearer t0ken-t0ken", "s3cret"];
        for (body, want) in [
            ("nothing of it", "nothing of it"),
            ("", ""),
            (
                r#"{"authorization":"Bearer t0ken-t0ken","x":"s3cret s3crets3cret"}"#,
                r#"{"authorization":"Bearer [redacted]","x":"[redacted] [redacted][redacted]"}"#,
            ),
            // Cut off where the excerpt ends.
            ("ä t0ken-t0", "ä [redacted]"),
            ("t0k", "t0k"),
        ] {
            assert_eq!(redacted(body.as_bytes(), &secrets), want);
        }
        assert_eq!(
            redacted(b"abc ab", &["ab"]),
            "abc ab",
            "too short to be one"
        );
    }
}
