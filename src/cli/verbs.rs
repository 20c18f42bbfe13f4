//! What operators do to messages and endpoints.

use serde_json::json;
use uuid::Uuid;

use super::{Database, Failure, find::Which, jobs::many, text};
use crate::store::{Mandate, Store, Verb};

/// Who says so, and why.
#[derive(Debug, clap::Args)]
pub(super) struct By {
    /// Why: kept in the history of the message or saga; with an endpoint, until its next pause or resume.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Who: kept beside it; without it, the database's user.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Which messages a verb is for, and how it goes about many.
#[derive(Debug, clap::Args)]
pub(super) struct Many {
    /// These messages.
    #[arg(value_name = "ID", conflicts_with_all = ["topic", "key", "reason", "status", "error", "since", "until", "all", "dry_run"])]
    ids: Vec<Uuid>,
    #[command(flatten)]
    pub(super) which: Which,
    /// All there are, where no filter is given.
    #[arg(long)]
    pub(super) all: bool,
    /// Count what is meant, and do nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// As JSON: with ids, one object a line for each; the job when it has ended; with --dry-run, an array.
    #[arg(long)]
    pub(super) json: bool,
    /// Go on with a job that was interrupted.
    #[arg(long, value_name = "JOB", conflicts_with_all = ["ids", "topic", "endpoint", "key", "reason", "status", "error", "since", "until", "all", "dry_run", "why", "by"])]
    pub(super) resume: Option<i64>,
    #[command(flatten)]
    pub(super) by: By,
    #[command(flatten)]
    database: Database,
}

#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    #[command(flatten)]
    many: Many,
    /// From what was delivered and is kept, instead of from the dead letters.
    #[arg(long, conflicts_with_all = ["resume", "reason", "status", "error"])]
    delivered: bool,
    /// Under new ids: to their receivers they are other messages.
    #[arg(long, conflicts_with = "resume")]
    new_key: bool,
    /// Messages in a second, at most.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with_all = ["ids", "resume"])]
    rate: Option<f64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReleaseKey {
    /// The topic.
    topic: String,
    /// The ordering key.
    key: String,
    /// Only at this endpoint, of several.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// As a JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    database: Database,
}

pub(super) async fn replay(replay: Replay) -> Result<(), Failure> {
    let verb = Verb::Replay {
        delivered: replay.delivered,
        new_key: replay.new_key,
        rate: replay.rate,
    };
    let store = replay.many.database.open()?;
    if replay.many.ids.is_empty() {
        return many(&store, verb, &replay.many).await;
    }
    let mut missing = Vec::new();
    for id in &replay.many.ids {
        let endpoint = replay.many.which.endpoint();
        let mandate = replay.many.by.mandate();
        let (delivered, new_key) = (replay.delivered, replay.new_key);
        let replayed = store.replay(*id, endpoint, delivered, new_key, mandate);
        let (ids, pending) = replayed.await?;
        if replay.many.json {
            match (ids.len(), pending) {
                (0, 0) => missing.push(id.to_string()),
                _ => answer(&json!({ "id": id, "replayed": ids, "pending": pending }))?,
            }
            continue;
        }
        let mut said = Vec::new();
        match ids.as_slice() {
            [] => {}
            [same] if same == id => said.push("is sent again".to_owned()),
            several if several.contains(id) => {
                said.push(format!("is sent again, to {} endpoints", several.len()));
            }
            others => {
                let others: Vec<String> = others.iter().map(Uuid::to_string).collect();
                said.push(format!("is sent again as {}", others.join(", ")));
            }
        }
        match (ids.len(), pending) {
            (_, 0) => {}
            (0, _) => said.push("is pending already".to_owned()),
            (_, more) => said.push(format!("at {more} more it is pending already")),
        }
        if said.is_empty() {
            missing.push(id.to_string());
        } else {
            say!("{id}: {}", said.join(", "));
        }
    }
    let what = match replay.delivered {
        true => "delivered and kept",
        false => "dead (with --delivered, what was delivered and is kept is sent again)",
    };
    found(&missing, what)
}

pub(super) async fn discard(discard: Many) -> Result<(), Failure> {
    let store = discard.database.open()?;
    if discard.ids.is_empty() {
        return many(&store, Verb::Discard, &discard).await;
    }
    let mut missing = Vec::new();
    for id in &discard.ids {
        let endpoint = discard.which.endpoint();
        match store.discard(*id, endpoint, discard.by.mandate()).await? {
            0 => missing.push(id.to_string()),
            many if discard.json => answer(&json!({ "id": id, "discarded": many }))?,
            1 => say!("{id}: discarded"),
            several => say!("{id}: discarded, at {several} endpoints"),
        }
    }
    found(&missing, "dead")
}

pub(super) async fn release_key(args: ReleaseKey) -> Result<(), Failure> {
    let store = args.database.open()?;
    let (topic, key) = (&args.topic, &args.key);
    let endpoint = args.endpoint.as_deref();
    let opened = store.release_key(topic, key, endpoint, args.by.mandate());
    match opened.await? {
        0 => {
            let at = endpoint.map_or(String::new(), |endpoint| {
                format!(" at {endpoint} alone (one that died before fan-out holds it for all: leave out --endpoint)")
            });
            Err(Failure::Other(format!(
                "no dead message holds key {key:?} of topic {topic:?}{at}"
            )))
        }
        many if args.json => answer(&json!({ "released": many })),
        _ => {
            say!(
                "{topic:?}, key {key:?}: goes on without its dead message, which is still a dead letter"
            );
            Ok(())
        }
    }
}

pub(super) async fn pause(
    store: &Store,
    endpoint: &str,
    by: &By,
    json: bool,
) -> Result<(), Failure> {
    match store.pause(endpoint, by.mandate()).await? {
        Some(changed) if json => return answer(&json!({ "changed": changed })),
        Some(true) => say!("{endpoint}: paused"),
        Some(false) => say!("{endpoint}: was paused already"),
        None => return Err(unknown(store, endpoint).await?),
    }
    Ok(())
}

pub(super) async fn resume(
    store: &Store,
    endpoint: &str,
    by: &By,
    json: bool,
) -> Result<(), Failure> {
    match store.resume(endpoint, by.mandate()).await? {
        Some(changed) if json => return answer(&json!({ "changed": changed })),
        Some(true) => say!("{endpoint}: goes on"),
        Some(false) => say!("{endpoint}: was not paused"),
        None => return Err(unknown(store, endpoint).await?),
    }
    Ok(())
}

pub(super) async fn cancel(store: &Store, id: Uuid, by: &By, json: bool) -> Result<(), Failure> {
    let (cancelled, in_flight) = store.cancel(id, by.mandate()).await?;
    if json && cancelled > 0 {
        answer(&json!({ "cancelled": cancelled, "in_flight": in_flight }))?;
    }
    match (cancelled, in_flight) {
        (0, 0) => Err(Failure::Other(format!(
            "no message {id} is pending: it is delivered, dead, or was never there"
        ))),
        (_, 0) if json => Ok(()),
        (cancelled, 0) => {
            say!("{id}: cancelled ({cancelled})");
            Ok(())
        }
        (cancelled, in_flight) => Err(Failure::Other(format!(
            "{id}: {in_flight} on its way, which can't be taken back ({cancelled} cancelled)"
        ))),
    }
}

/// For programs: what the API answers for the same, in one line.
pub(super) fn answer(value: &serde_json::Value) -> Result<(), Failure> {
    say!("{}", text::object(value)?);
    Ok(())
}

fn found(missing: &[String], what: &str) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Other(format!(
        "not {what}: {}",
        missing.join(", ")
    )))
}

async fn unknown(store: &Store, endpoint: &str) -> Result<Failure, Failure> {
    let status = store.status().await?;
    let known: Vec<String> = status
        .endpoints
        .into_iter()
        .map(|known| known.endpoint)
        .collect();
    let known = if known.is_empty() {
        "none".into()
    } else {
        known.join(", ")
    };
    Ok(Failure::Other(format!(
        "there is no endpoint {endpoint:?}; those that a relay ever had: {known}"
    )))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.001..=1e6).contains(&number) => Ok(number),
        _ => Err("a number of messages in a second, from 0.001 to 1000000".into()),
    }
}

// === impl By ===

impl By {
    pub(super) fn mandate(&self) -> Mandate<'_> {
        Mandate {
            by: self.by.as_deref(),
            why: self.why.as_deref(),
        }
    }
}
