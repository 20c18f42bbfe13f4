//! What operators look for: lists, the history, one message, and why it is not delivered.

use clap::ValueEnum;
use serde_json::Value;
use uuid::Uuid;

use super::{
    Database, Failure,
    text::{self, Colour},
};
use crate::{
    config,
    store::{Filter, Line, Listed, Search, State, Store, Why},
};

/// Which messages are meant: all that is given must fit.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Their topic, whole or with a `*` at its end.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Their destination.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// Their ordering key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Why they died: `rejected`, `attempts`, `max_age`, `expired` or `lost`.
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// The HTTP status of the last answer.
    #[arg(long, value_name = "CODE")]
    status: Option<i32>,
    /// A part of the last error, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Not before this time, or not longer ago (`2h`).
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<String>,
    /// Before this time, or longer ago.
    #[arg(long, value_name = "TIME", value_parser = when)]
    until: Option<String>,
}

/// How much of a list.
#[derive(Debug, clap::Args)]
pub(super) struct Page {
    /// So many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(super) limit: i32,
    /// What the page before said of the next one.
    #[arg(long, value_name = "PLACE", value_parser = place)]
    pub(super) after: Option<Value>,
    /// As a JSON array; the place of its last element is where the next page begins.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Which ones.
    #[arg(value_enum, default_value_t = Kind::Pending)]
    state: Kind,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    database: Database,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Not delivered yet.
    Pending,
    /// Given up on.
    Dead,
    /// Delivered and kept for replay.
    Delivered,
}

/// Which lines of the history are meant: all that is given must fit.
#[derive(Debug, clap::Args)]
pub(super) struct Lines {
    /// Of this message.
    #[arg(value_name = "ID")]
    id: Option<Uuid>,
    /// Only what was not delivered.
    #[arg(long)]
    failures: bool,
    /// Of this topic, whole or with a `*` at its end.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// To this endpoint.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// Of this ordering key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// With this outcome: success, unavailable, rejected, timeout, …
    #[arg(long, value_name = "CLASS")]
    outcome: Option<String>,
    /// That led to this: `delivered`, `retry`, `put_off`, `dead`, `undo`, or `replayed`, `discarded`, `cancelled`, `key_released`.
    #[arg(long, value_name = "WORD")]
    settlement: Option<String>,
    /// With this HTTP status.
    #[arg(long, value_name = "CODE")]
    status: Option<i32>,
    /// With this in its error, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// By this relay.
    #[arg(long, value_name = "NAME")]
    relay: Option<String>,
    /// That took longer than this.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    slower: Option<f64>,
    /// Only each message's first attempt (1), its second, and so on; 0: where none was made.
    #[arg(long, value_name = "N")]
    attempt: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(super) struct History {
    #[command(flatten)]
    lines: Lines,
    /// Not before this time, or not longer ago (`2h`).
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<String>,
    /// Before this time, or longer ago.
    #[arg(long, value_name = "TIME", value_parser = when)]
    until: Option<String>,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    database: Database,
}

pub(super) async fn list(args: List) -> Result<(), Failure> {
    let store = args.database.open()?;
    let state = match args.state {
        Kind::Pending => State::Pending,
        Kind::Dead => State::Dead,
        Kind::Delivered => State::Delivered,
    };
    let page = &args.page;
    let filter = args.which.filter();
    let rows = store
        .list(state, &filter, page.after.as_ref(), page.limit)
        .await?;
    if page.json {
        say!("{}", text::json(&rows)?);
        return Ok(());
    }
    say!("{:<36} {:<14} {:<16} TO", "ID", "AT (UTC)", "TOPIC");
    for row in &rows {
        print_listed(row, state);
    }
    page.next(rows.len(), rows.last().map(|row| &row.place));
    Ok(())
}

fn print_listed(row: &Listed, state: State) {
    let to = match row.endpoint.as_str() {
        "" => "-",
        endpoint => endpoint,
    };
    let head = format!(
        "{:<36} {:<14} {:<16} ",
        row.id,
        text::moment(&row.at),
        text::cut(&row.topic, 16)
    );
    let mut parts = vec![to.to_owned()];
    parts.extend(row.reason.clone());
    if row.attempts > 0 {
        parts.push(format!("{} attempts", row.attempts));
    }
    parts.extend(
        row.due_at
            .as_deref()
            .map(|due| format!("due {}", text::moment(due))),
    );
    parts.extend(row.error.clone());
    let colour = match state {
        State::Delivered => Some(Colour::Green),
        State::Dead => Some(Colour::Red),
        // It has failed before.
        State::Pending => (row.attempts > 0).then_some(Colour::Yellow),
    };
    text::row(
        &head,
        &parts.join("  "),
        colour.map(|colour| (0, 36, colour)),
    );
}

pub(super) async fn history(args: History) -> Result<(), Failure> {
    let store = args.database.open()?;
    let page = &args.page;
    let search = Search {
        since: args.since.clone(),
        until: args.until.clone(),
        ..args.lines.search()
    };
    let lines = store
        .history(&search, page.after.as_ref(), page.limit)
        .await?;
    if page.json {
        say!("{}", text::json(&lines)?);
        return Ok(());
    }
    print_heading();
    for line in &lines {
        print_line(line);
    }
    page.next(lines.len(), lines.last().map(|line| &line.place));
    Ok(())
}

pub(super) fn print_heading() {
    say!(
        "{:<14} {:<36} {:>3} {:<12} TO",
        "AT (UTC)",
        "ID",
        "TRY",
        "OUTCOME"
    );
}

/// Whether somebody still reads it.
pub(super) fn print_line(line: &Line) -> bool {
    let attempt = if line.attempt > 0 {
        line.attempt.to_string()
    } else {
        "-".into()
    };
    let head = format!(
        "{:<14} {:<36} {attempt:>3} {:<12} ",
        text::moment(&line.started_at),
        line.id,
        text::cut(&line.outcome, 12),
    );
    let colour = match line.settlement.as_str() {
        "delivered" => Some(Colour::Green),
        "retry" | "put_off" | "undo" => Some(Colour::Yellow),
        "dead" => Some(Colour::Red),
        // What an operator did is neither good nor bad.
        _ => None,
    };
    let rest = format!("{}  {}", line.endpoint, told(line));
    // The outcome's column.
    text::row(&head, &rest, colour.map(|colour| (56, 68, colour)))
}

/// What a line of the history says beside when, what and where.
fn told(line: &Line) -> String {
    let mut parts = Vec::new();
    parts.extend(line.status.map(|status| status.to_string()));
    if line.attempt > 0 {
        parts.push(text::age(line.seconds));
    } else {
        parts.push(format!("by {}", line.relay));
    }
    if line.settlement != line.outcome {
        parts.push(format!("→ {}", line.settlement));
    }
    parts.extend(line.reason.clone());
    parts.extend(line.error.clone());
    parts.extend(line.response.clone());
    parts.join("  ")
}

pub(super) async fn why(store: &Store, id: Uuid, json: bool) -> Result<(), Failure> {
    let why = store.why(id).await?;
    if why.is_empty() {
        return Err(unknown(id));
    }
    if json {
        say!("{}", text::json(&why)?);
        return Ok(());
    }
    print_why(&why);
    Ok(())
}

pub(super) fn print_why(why: &[Why]) {
    for Why { endpoint, why, .. } in why {
        let why = text::flat(why);
        match endpoint.as_str() {
            "" => say!("{why}"),
            endpoint => say!("{endpoint}: {why}"),
        }
    }
}

pub(super) fn unknown(id: Uuid) -> Failure {
    Failure::Other(format!(
        "no message {id} is known: it was never committed, or its history is past retention"
    ))
}

/// A time as PostgreSQL reads it; or a duration, which is subtracted from now.
pub(super) fn when(text: &str) -> Result<String, String> {
    if let Ok(ago) = config::duration(text) {
        return Ok(format!("ago {} s", ago.as_secs_f64()));
    }
    if text.starts_with('-') || text.is_empty() {
        return Err("a time such as 2026-11-30 12:00:00+01, or a duration such as 2h".into());
    }
    Ok(text.to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    config::duration(text).map(|duration| duration.as_secs_f64())
}

fn place(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(place @ Value::Array(_)) => Ok(place),
        _ => Err("the place that the page before ended with, a JSON array".into()),
    }
}

// === impl Which ===

impl Which {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            topic: self.topic.clone(),
            endpoint: self.endpoint.clone(),
            key: self.key.clone(),
            reason: self.reason.clone(),
            status: self.status,
            error: self.error.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
        }
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }
}

// === impl Lines ===

impl Lines {
    pub(super) fn search(&self) -> Search {
        Search {
            id: self.id,
            topic: self.topic.clone(),
            endpoint: self.endpoint.clone(),
            key: self.key.clone(),
            outcome: self.outcome.clone(),
            settlement: self.settlement.clone(),
            status: self.status,
            error: self.error.clone(),
            relay: self.relay.clone(),
            failures: self.failures,
            slower: self.slower,
            attempt: self.attempt.map(i32::from),
            since: None,
            until: None,
        }
    }
}

// === impl Page ===

impl Page {
    /// Says how to see more, if there may be more.
    pub(super) fn next(&self, rows: usize, last: Option<&Value>) {
        match last {
            Some(place) if i32::try_from(rows) == Ok(self.limit) => {
                say!("\nmore: --after {}", text::quoted(&place.to_string()));
            }
            Some(_) => {}
            None => say!("nothing"),
        }
    }
}
