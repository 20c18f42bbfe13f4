//! The whole life of a message, for people.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use uuid::Uuid;

use super::{
    Failure,
    find::{print_why, unknown},
    text,
};
use crate::store::{Store, Why};

/// What `show` prints of a message's life, and how it is read.
#[derive(Deserialize)]
struct Life<'a> {
    why: Vec<Why>,
    #[serde(borrow)]
    pending: Vec<Row<'a>>,
    #[serde(borrow)]
    dead: Vec<Row<'a>>,
    #[serde(borrow)]
    delivered: Vec<Row<'a>>,
    attempts: Vec<Try>,
}

/// A row of one of the three tables.
#[derive(Deserialize)]
struct Row<'a> {
    topic: String,
    key: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    content_type: Option<String>,
    headers: Option<Value>,
    size: i32,
    seq: i64,
    generation: i32,
    created_at: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    body: Option<String>,
}

/// A row of the history.
#[derive(Deserialize)]
struct Try {
    started_at: String,
    attempt: i32,
    endpoint: String,
    outcome: String,
    settlement: String,
    status: Option<i32>,
    reason: Option<String>,
    error: Option<String>,
    response: Option<String>,
    relay: String,
    request: Option<Sent>,
    response_headers: Option<Map<String, Value>>,
}

/// What the history has of a request.
#[derive(Deserialize)]
struct Sent {
    method: String,
    url: String,
    headers: Map<String, Value>,
    size: u64,
    sha256: String,
}

pub(super) async fn show(store: &Store, id: Uuid, json: bool) -> Result<(), Failure> {
    let Some(life) = store.show(id).await? else {
        return Err(unknown(id));
    };
    if json {
        say!("{}", text::escaped(life.get()));
        return Ok(());
    }
    let life: Life<'_> =
        serde_json::from_str(life.get()).map_err(|error| Failure::Other(error.to_string()))?;
    say!("message {id}");
    print_why(&life.why);
    let rows = [&life.pending, &life.dead, &life.delivered];
    if let Some(row) = rows.into_iter().flatten().next() {
        say!("\ntopic      {}", row.topic);
        for (name, value) in [
            ("key", &row.key),
            ("type", &row.kind),
            ("content", &row.content_type),
        ] {
            if let Some(value) = value {
                say!("{name:<10} {}", text::flat(value));
            }
        }
        say!(
            "inserted   {} UTC, seq {}, {} bytes",
            text::moment(&row.created_at),
            row.seq,
            row.size
        );
        if row.generation > 0 {
            say!("replayed   {} times", row.generation);
        }
        if let Some(headers) = &row.headers {
            say!("headers    {headers}");
        }
        match (row.payload, &row.body) {
            (Some(payload), _) => say!("payload    {}", payload.get()),
            (None, Some(body)) => say!("body       {body}"),
            (None, None) => {}
        }
    }
    if !life.attempts.is_empty() {
        say!(
            "\n{:<14} {:>3} {:<16} {:<12} WHAT",
            "AT (UTC)",
            "TRY",
            "ENDPOINT",
            "OUTCOME"
        );
    }
    for line in &life.attempts {
        let attempt = if line.attempt > 0 {
            line.attempt.to_string()
        } else {
            "-".into()
        };
        let mut what: Vec<String> = line
            .status
            .map(|status| status.to_string())
            .into_iter()
            .collect();
        if line.attempt == 0 {
            what.push(format!("by {}", line.relay));
        }
        if line.settlement != line.outcome {
            what.push(format!("→ {}", line.settlement));
        }
        what.extend(
            [&line.reason, &line.error, &line.response]
                .into_iter()
                .flatten()
                .cloned(),
        );
        let line = format!(
            "{:<14} {attempt:>3} {:<16} {:<12} {}",
            text::moment(&line.started_at),
            text::cut(&line.endpoint, 16),
            text::cut(&line.outcome, 12),
            what.join("  ")
        );
        say!("{}", text::line(&line));
    }
    print_last(&life.attempts);
    Ok(())
}

/// The newest request that the history has more of than its outcome.
fn print_last(attempts: &[Try]) {
    let with = |line: &&Try| line.request.is_some();
    let Some(line) = attempts.iter().rev().find(with) else {
        return;
    };
    if let Some(sent) = &line.request {
        say!(
            "\nattempt {} sent {} bytes (sha256 {})",
            line.attempt,
            sent.size,
            sent.sha256
        );
        say!("{}", text::line(&format!("  {} {}", sent.method, sent.url)));
        print_headers(&sent.headers);
    }
    if let Some(headers) = &line.response_headers {
        let status = line.status.map(|status| status.to_string());
        say!("and was answered {}", status.unwrap_or_default());
        print_headers(headers);
    }
}

fn print_headers(headers: &Map<String, Value>) {
    for (name, value) in headers {
        let value = value.as_str().unwrap_or_default();
        say!("{}", text::line(&format!("  {name}: {value}")));
    }
}
