//! Whether a participant keeps the promises that deliveries and the steps of a saga rest on.
//!
//! The relay sends at least once, and undoes what may never have arrived. Both are safe only with a receiver that knows a key
//! again, also while it is at work on the first request, and that remembers an undo for which it has nothing to undo yet. Whether one
//! does shows in production when a relay dies at the wrong moment, or here, by asking it.
//!
//! The requests are real: they are made by the very client that delivers, and the participant does what they say.

mod checks;
mod participant;

use std::{path::PathBuf, time::Duration};

use clap::ArgGroup;
use rand::{
    SeedableRng as _,
    rngs::{StdRng, SysRng},
};
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use serde::Serialize;
use serde_json::Value;

use self::{checks::Checks, participant::Participant};
use super::{
    Failure,
    text::{self, Colour},
};
use crate::{
    config,
    delivery::{Endpoint, auth, headers, sign},
};

const CHECKS: &str = "\
Checks, of which the last three need --undo:
  accepts        a do is answered 2xx
  repeat         the same key again has the same answer
  together       the same key several times at once comes to one answer; 409, 425 and 503 mean \"not yet\"
  other_payload  another payload under a key is refused with 422, as the IETF draft of Idempotency-Key has it
  undo_first     an undo of what never came is answered 2xx or 410, and the do after it is refused for good (422)
  undo_twice     an undo that comes again is answered 2xx or 410
  do_after_undo  a do that comes again after its undo is refused for good (422)

Exit codes: 0 nothing failed; 1 something did; 2 the command line is wrong.";

/// The options of `outbox-relay probe`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("as").args(["bearer_file", "authorization_file"]), after_help = CHECKS)]
pub(super) struct Probe {
    /// Where its do goes. It is called about twenty times, under ids of its own: use a participant that may be tried with.
    #[arg(value_parser = url)]
    url: Url,
    /// Where its undo goes; without it, what concerns undo is not checked.
    #[arg(long, value_name = "URL", value_parser = url)]
    undo: Option<Url>,
    /// The input that it gets, one that it accepts: JSON, or @ and the name of a file with it.
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", value_parser = json)]
    payload: Value,
    /// Another input, for the check of one key with two payloads; without it, the payload with one member more.
    #[arg(long, value_name = "JSON|@FILE", value_parser = json)]
    other_payload: Option<Value>,
    /// The name of the saga that it is told.
    #[arg(long, value_name = "NAME", default_value = "probe", value_parser = word)]
    saga: String,
    /// The name of the step that it is told.
    #[arg(long, value_name = "NAME", default_value = "probe", value_parser = word)]
    step: String,
    /// A header that every request has; can be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A file with a bearer token, as `bearer_file` of an endpoint.
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
    /// A file with the whole value of Authorization, as in `header_files` of an endpoint.
    #[arg(long, value_name = "FILE")]
    authorization_file: Option<PathBuf>,
    /// A file with signing secrets, as `sign.secret_files` of an endpoint.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The time that each request has.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = timeout)]
    timeout: Duration,
    /// As a JSON array.
    #[arg(long)]
    json: bool,
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Pass,
    /// It works, and not as it should.
    Warn,
    Fail,
}

/// One check, as it is printed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Found {
    /// Its word.
    check: &'static str,
    verdict: Verdict,
    /// What was sent and what came back.
    seen: String,
    /// What the participant must do about it; `None` where all is well.
    fix: Option<String>,
}

pub(super) async fn probe(probe: Probe) -> Result<(), Failure> {
    let rng = StdRng::try_from_rng(&mut SysRng)
        .map_err(|error| Failure::Other(format!("no randomness for ids: {error}")))?;
    let participant = Participant::new(&probe)?;
    let other = probe
        .other_payload
        .unwrap_or_else(|| with_one_member_more(&probe.payload));
    if other == probe.payload {
        return Err(Failure::Usage(
            "--other-payload is the same as --payload".into(),
        ));
    }
    let found = Checks::new(&participant, probe.payload, other, rng)
        .run()
        .await;
    if probe.json {
        say!("{}", text::json(&found)?);
    } else {
        found.iter().for_each(print);
        if !participant.undoes() {
            say!("undo is not checked: --undo says where it goes");
        }
    }
    let failed = |found: &&Found| found.verdict == Verdict::Fail;
    match found.iter().filter(failed).count() {
        0 => Ok(()),
        count => Err(Failure::Other(format!(
            "{count} of {} checks failed",
            found.len()
        ))),
    }
}

fn print(found: &Found) {
    let (word, colour) = match found.verdict {
        Verdict::Pass => ("pass", Colour::Green),
        Verdict::Warn => ("warn", Colour::Yellow),
        Verdict::Fail => ("FAIL", Colour::Red),
    };
    let head = format!("{word}  {:<14} ", found.check);
    text::wrapped(&head, &found.seen, Some((0, colour)));
    if let Some(fix) = &found.fix {
        text::wrapped("      ", fix, None);
    }
}

/// The same input for who reads it, another one for who compares it.
fn with_one_member_more(payload: &Value) -> Value {
    match payload {
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert("another_payload_of_the_probe".into(), true.into());
            Value::Object(members)
        }
        other => Value::Array(vec![other.clone()]),
    }
}

// === options ===

fn url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn json(text: &str) -> Result<Value, String> {
    let text = match text.strip_prefix('@') {
        Some(path) => &std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
        None => text,
    };
    serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))
}

fn word(text: &str) -> Result<String, String> {
    let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    match visible {
        true => Ok(text.to_owned()),
        false => Err("visible ASCII characters without blanks".into()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("a name, a colon and a value, such as \"X-Tenant: 7\"")?;
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let parsed = parsed.map_err(|_| format!("{name:?} is no legal header name"))?;
    if headers::reserved(name) || parsed.as_str().starts_with("saga-") {
        return Err(format!("{name:?} is a header that HTTP or the relay sets"));
    }
    let value = HeaderValue::from_str(value.trim());
    let mut value = value.map_err(|_| format!("{name:?} has no legal value"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn timeout(text: &str) -> Result<Duration, String> {
    match config::duration(text)? {
        Duration::ZERO => Err("must be more than 0".into()),
        timeout => Ok(timeout),
    }
}

impl Probe {
    /// As the configuration would have it.
    fn endpoint(&self, url: &Url) -> Endpoint {
        let mut endpoint = Endpoint::new("probe", url.clone());
        endpoint.timeout = self.timeout;
        endpoint.connect_timeout = endpoint.connect_timeout.min(self.timeout);
        endpoint.format.headers.clone_from(&self.headers);
        if let Some(file) = &self.bearer_file {
            endpoint.auth = auth::Config::Bearer { file: file.clone() };
        }
        if let Some(file) = &self.authorization_file {
            let header = (reqwest::header::AUTHORIZATION, file.clone());
            endpoint.format.header_files.push(header);
        }
        if let Some(file) = &self.secret_file {
            endpoint.sign = sign::Config {
                secrets: Vec::new(),
                secret_files: vec![file.clone()],
            };
        }
        endpoint
    }
}
