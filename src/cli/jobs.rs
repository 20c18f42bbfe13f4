//! Replays and discards of many messages: jobs, whose progress is in the database.

use std::{io::IsTerminal, time::Duration};

use serde_json::json;
use tokio::time::{self, Instant};

use super::{
    Failure, shutdown, text,
    verbs::{Many, answer},
};
use crate::store::{Filter, Job, Matching, Progress, Store, Verb};

/// A piece of a job has so many messages at most.
const PIECE: i32 = 500;

/// Somebody else is at this job: how it does is asked so often.
const BUSY: Duration = Duration::from_millis(500);

/// Lists the newest jobs, or ends one.
pub(super) async fn jobs(store: &Store, abort: Option<i64>, json: bool) -> Result<(), Failure> {
    if let Some(job) = abort {
        match store.abort_job(job).await? {
            Some(was_running) if json => {
                answer(&json!({ "was_running": was_running }))?;
            }
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
pub(super) async fn many(store: &Store, verb: Verb, many: &Many) -> Result<(), Failure> {
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
            if many.dry_run && many.json {
                say!("{}", text::json(&matching)?);
                return Ok(());
            }
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
            if !many.json {
                say!("job {job}: {total} messages");
            }
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
        done = see_through(store, &begun, total, many.json) => match done {
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
async fn see_through(
    store: &Store,
    begun: &Job,
    total: Option<i64>,
    json: bool,
) -> Result<(), Failure> {
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
                if json {
                    // As it is now.
                    let job = store.jobs(Some(job), 1).await?.pop();
                    say!("{}", text::json(&job)?);
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
                if !json {
                    say!("{said}");
                }
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
