//! What operators do to messages and endpoints.

use std::{io::IsTerminal, time::Duration};

use tokio::time::{self, Instant};
use uuid::Uuid;

use super::{Database, Failure, find::Which, shutdown, text};
use crate::store::{Filter, Job, Mandate, Matching, Progress, Store, Verb};

/// A piece of a job has so many messages at most.
const PIECE: i32 = 500;

/// Somebody else is at this job: how it does is asked so often.
const BUSY: Duration = Duration::from_millis(500);

/// Who says so, and why.
#[derive(Debug, clap::Args)]
pub(super) struct By {
    /// Why: kept in the history.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Who: kept in the history; without it, the database's user.
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
    which: Which,
    /// All there are, where no filter is given.
    #[arg(long)]
    all: bool,
    /// Count what is meant, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Go on with a job that was interrupted.
    #[arg(long, value_name = "JOB", conflicts_with_all = ["ids", "topic", "endpoint", "key", "reason", "status", "error", "since", "until", "all", "dry_run", "why", "by"])]
    resume: Option<i64>,
    #[command(flatten)]
    by: By,
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
        let answer = store.replay(*id, endpoint, delivered, new_key, mandate);
        let (ids, pending) = answer.await?;
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
        _ => {
            say!(
                "{topic:?}, key {key:?}: goes on without its dead message, which is still a dead letter"
            );
            Ok(())
        }
    }
}

pub(super) async fn pause(store: &Store, endpoint: &str, by: &By) -> Result<(), Failure> {
    match store.pause(endpoint, by.mandate()).await? {
        Some(true) => say!("{endpoint}: paused"),
        Some(false) => say!("{endpoint}: was paused already"),
        None => return Err(unknown(store, endpoint).await?),
    }
    Ok(())
}

pub(super) async fn resume(store: &Store, endpoint: &str) -> Result<(), Failure> {
    match store.resume(endpoint).await? {
        Some(true) => say!("{endpoint}: goes on"),
        Some(false) => say!("{endpoint}: was not paused"),
        None => return Err(unknown(store, endpoint).await?),
    }
    Ok(())
}

pub(super) async fn cancel(store: &Store, id: Uuid, by: &By) -> Result<(), Failure> {
    match store.cancel(id, by.mandate()).await? {
        (0, 0) => Err(Failure::Other(format!(
            "no message {id} is pending: it is delivered, dead, or was never there"
        ))),
        (cancelled, 0) => {
            say!("{id}: cancelled ({cancelled})");
            Ok(())
        }
        (cancelled, in_flight) => Err(Failure::Other(format!(
            "{id}: {in_flight} on its way, which can't be taken back ({cancelled} cancelled)"
        ))),
    }
}

/// Lists the newest jobs, or ends one.
pub(super) async fn jobs(store: &Store, abort: Option<i64>, json: bool) -> Result<(), Failure> {
    if let Some(job) = abort {
        match store.abort_job(job).await? {
            Some(true) => say!("job {job}: aborted"),
            Some(false) => say!("job {job}: had ended already"),
            None => return Err(Failure::Other(format!("there is no job {job}"))),
        }
        return Ok(());
    }
    let jobs = store.jobs(None, 50).await?;
    if json {
        say!("{}", text::json(&jobs)?);
        return Ok(());
    }
    for job in &jobs {
        say!("{}", describe(job));
    }
    if jobs.is_empty() {
        say!("there was none");
    }
    Ok(())
}

/// Begins a job, or goes on with one, and sees it through.
async fn many(store: &Store, verb: Verb, many: &Many) -> Result<(), Failure> {
    let (job, total) = match many.resume {
        Some(job) => (job, None),
        None => {
            let filter = many.which.filter();
            if filter.is_empty() && !many.all {
                return Err(Failure::Usage(
                    "say which: ids, a filter such as --endpoint or --error, or --all".into(),
                ));
            }
            let matching = store.matching(verb, &filter).await?;
            let total: i64 = matching.iter().map(|kind| kind.messages).sum();
            if many.dry_run {
                print_matching(&matching, total);
                return Ok(());
            }
            if total == 0 {
                return Err(Failure::Other(
                    "no message is meant by that: nothing was done".into(),
                ));
            }
            let job = store
                .start_job(verb, &filter, many.by.mandate(), false)
                .await?;
            say!("job {job}: {total} messages");
            (job, Some(total))
        }
    };
    let Some(begun) = store.jobs(Some(job), 1).await?.pop() else {
        return Err(Failure::Other(format!("there is no job {job}")));
    };
    if begun.verb != verb.as_str() {
        return Err(Failure::Usage(format!(
            "job {job} is a {0}: `outbox-relay {0} --resume {job}` goes on with it",
            begun.verb
        )));
    }
    let what = tokio::select! {
        done = see_through(store, &begun, total) => match done {
            Err(Failure::Database(error)) => format!("{error}; "),
            done => return done,
        },
        () = shutdown() => String::new(),
    };
    Err(Failure::Other(format!(
        "{what}job {job} is not done: `outbox-relay {} --resume {job}` goes on with it, `outbox-relay jobs --abort {job}` ends it",
        begun.verb
    )))
}

/// How many messages a job is for, those that it is done with among them.
async fn count(store: &Store, begun: &Job) -> Result<i64, Failure> {
    let filter = Filter {
        topic: begun.topic.clone(),
        endpoint: begun.endpoint.clone(),
        key: begun.key.clone(),
        reason: begun.reason.clone(),
        status: begun.status,
        error: begun.error.clone(),
        since: Some(begun.since.clone()),
        until: Some(begun.until.clone()),
    };
    let verb = match begun.verb.as_str() {
        "discard" => Verb::Discard,
        _ => Verb::Replay {
            delivered: begun.source == "delivered",
            new_key: begun.new_key,
            rate: begun.rate,
        },
    };
    // Of dead letters those are left that it has not come to; of what was delivered, all are still there.
    let left: i64 = store
        .matching(verb, &filter)
        .await?
        .iter()
        .map(|kind| kind.messages)
        .sum();
    Ok(match begun.source.as_str() {
        "dead" => begun.done + left,
        _ => left,
    })
}

/// `total`: how many there are, where that was counted already.
async fn see_through(store: &Store, begun: &Job, total: Option<i64>) -> Result<(), Failure> {
    let job = begun.job;
    let on_terminal = std::io::stderr().is_terminal();
    // To count them all of them are read: only for somebody who looks on.
    let total = match (on_terminal, total) {
        (false, _) => 0,
        (true, Some(total)) => total,
        (true, None) => count(store, begun).await?,
    };
    let started = Instant::now();
    loop {
        let progress = match store.run_job(job, PIECE).await {
            // Somebody has locked a lane for longer than a claim does, or each waited for the other: nothing was done.
            Err(error) if error.is_crowded() => {
                time::sleep(BUSY).await;
                continue;
            }
            progress => progress?,
        };
        let Progress {
            state,
            done,
            pending,
            wait,
        } = &progress;
        match state.as_str() {
            "running" => time::sleep(Duration::try_from_secs_f64(*wait).unwrap_or_default()).await,
            "busy" => time::sleep(BUSY).await,
            "missing" => return Err(Failure::Other(format!("there is no job {job}"))),
            ended => {
                if on_terminal {
                    eprint!("\r\x1b[K");
                }
                let again = if begun.verb == "discard" {
                    "discarded"
                } else {
                    "sent again"
                };
                let were = if *pending > 0 {
                    format!(", {pending} were pending already, or are not what they were")
                } else {
                    String::new()
                };
                let said = format!("job {job}: {ended}, {done} {again}{were}");
                if ended != "done" {
                    return Err(Failure::Other(said));
                }
                say!("{said}");
                return Ok(());
            }
        }
        if on_terminal {
            let rate = (done - begun.done) as f64 / started.elapsed().as_secs_f64().max(0.001);
            let gone = done + pending;
            let left = (total - gone).max(0) as f64 / rate;
            let left = Duration::try_from_secs_f64(left).map_or("?".into(), text::show);
            eprint!("\r\x1b[Kjob {job}: {gone} of {total}, {rate:.0} in a second, {left} left");
        }
    }
}

fn print_matching(matching: &[Matching], total: i64) {
    say!(
        "{:>9} {:<20} {:<24} {:<10} NEWEST",
        "MESSAGES",
        "ENDPOINT",
        "TOPIC",
        "REASON"
    );
    for kind in matching {
        say!(
            "{:>9} {:<20} {:<24} {:<10} {}",
            kind.messages,
            text::cut(&kind.endpoint, 20),
            text::cut(&kind.topic, 24),
            kind.reason.as_deref().unwrap_or("-"),
            text::moment(&kind.newest)
        );
    }
    say!("{total:>9} in all; nothing was done");
}

fn describe(job: &Job) -> String {
    let mut words = vec![format!(
        "{} {}: {} {}",
        job.job, job.state, job.verb, job.source
    )];
    let filter = [
        ("topic", &job.topic),
        ("endpoint", &job.endpoint),
        ("key", &job.key),
        ("reason", &job.reason),
        ("error", &job.error),
    ];
    words.extend(
        filter
            .iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name} = {value:?}"))),
    );
    words.extend(job.status.map(|status| format!("status = {status}")));
    words.push(format!("{} done", job.done));
    if job.pending > 0 {
        words.push(format!("{} pending already", job.pending));
    }
    let why = job
        .why
        .as_deref()
        .map_or(String::new(), |why| format!(": {why}"));
    words.push(format!(
        "by {} at {}{why}",
        job.started_by,
        text::moment(&job.created_at)
    ));
    text::flat(&words.join(", "))
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
