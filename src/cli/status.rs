//! How it all is, once or again and again.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{self, MissedTickBehavior};

use super::{
    Database, Failure, shutdown,
    text::{self, Colour, age, cut},
    written,
};
use crate::store::{self, COUNTED, Status, Store};

/// Where the last columns of the tables begin.
const RELAY: usize = 80;
const ENDPOINT: usize = 40;
const LANE: usize = 79;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    database: Database,
    /// As one JSON object; with --watch, one a line.
    #[arg(long)]
    json: bool,
    /// Again every so many seconds, until Ctrl-C. What the database's outage hides is said, and it goes on.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds)]
    watch: Option<Duration>,
}

pub(super) async fn status(args: Args) -> Result<(), Failure> {
    let store = args.database.open()?;
    let Some(every) = args.watch else {
        let status = look(&store).await?;
        match args.json {
            true => say!("{}", text::json(&status)?),
            false => print_status(&status),
        }
        return Ok(());
    };
    tokio::select! {
        done = watch(&store, every, args.json) => done,
        () = shutdown() => Ok(()),
    }
}

async fn look(store: &Store) -> Result<Status, Failure> {
    if store.version().await?.is_none() {
        return Err(store::Error::Refused(
            "the database has no outbox yet: run `outbox-relay migrate`".into(),
        )
        .into());
    }
    Ok(store.status().await?)
}

/// Until nobody reads it any more.
async fn watch(store: &Store, every: Duration, json: bool) -> Result<(), Failure> {
    let on_terminal = stdout().is_terminal();
    let mut ticks = time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u64.. {
        ticks.tick().await;
        let status = match look(store).await {
            Ok(status) => Ok(status),
            // What does not work from the start is not an outage but a wrong address, say.
            Err(failure) if round == 0 => return Err(failure),
            Err(Failure::Database(error)) => Err(error.to_string()),
            Err(failure) => return Err(failure),
        };
        // The time on the wall of who looks on, which is to be had in an outage too. Nothing is judged by it.
        let now = format!("{} UTC", text::moment(&Timestamp::now().to_string()));
        if json {
            let object = match &status {
                Ok(status) => text::object(status)?,
                Err(error) => text::object(&Value::from_iter([("error", error.as_str())]))?,
            };
            if !written(format!("{object}\n").as_bytes()) {
                return Ok(());
            }
            continue;
        }
        let before: &[u8] = match (on_terminal, round) {
            // To the upper left corner, and nothing below it.
            (true, _) => b"\x1b[H\x1b[2J",
            (false, 0) => b"",
            (false, _) => b"\n",
        };
        if !written(before) || !written(format!("{now}\n").as_bytes()) {
            return Ok(());
        }
        match status {
            Ok(status) => print_status(&status),
            Err(error) => {
                text::wrapped("", &error, Some((0, Colour::Red)));
            }
        }
    }
    Ok(())
}

/// From a tenth of a second, which no status takes, to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number) if (0.1..=86_400.0).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err("a number of seconds, from 0.1 to 86400".into()),
    }
}

fn print_status(status: &Status) {
    say!("schema version {}", status.schema_version);
    if !status.alerts.is_empty() {
        say!("\n{:<13} {:>8}  WHAT IS WRONG", "ALERT", "FOR");
    }
    for alert in &status.alerts {
        let lately = alert.looked_seconds.map_or("never".into(), age);
        let head = format!("{:<13} {:>8}  ", alert.kind, age(alert.seconds));
        let rest = format!("{}; seen {lately} ago: `{}`", alert.summary, alert.command);
        text::wrapped(&head, &rest, Some((0, Colour::Red)));
    }
    say!(
        "\n{:<30} {:<9} {:<13} {:>8} {:>8} {:>7}",
        "RELAY",
        "VERSION",
        "CONFIG",
        "UP",
        "BEAT",
        "LEASED"
    );
    for relay in &status.relays {
        let late = if relay.is_late() { " late" } else { "" };
        let differs = if relay.config_differs {
            " other configuration"
        } else {
            ""
        };
        let bell = if relay.keeps_bell { " doorbell" } else { "" };
        let head = format!(
            "{:<30} {:<9} {:<13} {:>8} {:>8} {:>7}",
            cut(&relay.name, 30),
            relay.version,
            cut(&relay.config_digest, 13),
            age(relay.up_seconds),
            age(relay.beat_seconds),
            relay.leased
        );
        let colour = relay.is_late().then_some((RELAY, Colour::Red));
        text::wrapped(&head, &format!("{bell}{late}{differs}"), colour);
    }
    if status.relays.is_empty() {
        say!("none is running");
    }
    if status.configs_differ {
        say!("relays run different configurations");
    }
    say!("\n{:<30} {:>7}  STATE", "ENDPOINT", "LEASED");
    for endpoint in &status.endpoints {
        let state = match (endpoint.paused_seconds, endpoint.closed_for) {
            (Some(since), _) => format!(
                "paused for {} by {}: {}",
                age(since),
                endpoint.paused_by.as_deref().unwrap_or("?"),
                endpoint
                    .pause_reason
                    .as_deref()
                    .unwrap_or("no reason given")
            ),
            (None, Some(left)) => format!("asked to be left alone for {}", age(left)),
            (None, None) => match (endpoint.breaker.as_str(), endpoint.open_for) {
                ("open", left) => format!("breaker open for {}", age(left.unwrap_or(0.0))),
                ("half_open", _) => "breaker half open: being probed".into(),
                _ => "good".into(),
            },
        };
        let state = match endpoint.change.as_deref() {
            Some("resumed") => format!(
                "{state}; resumed {} ago by {}: {}",
                age(endpoint.changed_seconds.unwrap_or_default()),
                endpoint.changed_by.as_deref().unwrap_or("?"),
                endpoint
                    .change_reason
                    .as_deref()
                    .unwrap_or("no reason given")
            ),
            _ => state,
        };
        let head = format!(
            "{:<30} {:>7}  ",
            cut(&endpoint.endpoint, 30),
            endpoint.leased
        );
        let colour = match state.as_str() {
            good if good.starts_with("good") => Colour::Green,
            // Somebody meant it, or it asked for it.
            _ if endpoint.paused_seconds.is_some() || endpoint.closed_for.is_some() => {
                Colour::Yellow
            }
            _ => Colour::Red,
        };
        text::wrapped(&head, &state, Some((ENDPOINT, colour)));
    }
    say!(
        "\n{:<48} {:>8} {:>10} {:>10}",
        "TOPIC",
        "PENDING",
        "OLDEST",
        "NEXT DUE"
    );
    for lane in &status.lanes {
        let topic = if lane.endpoint.is_empty() {
            lane.topic.clone()
        } else {
            format!("{} → {}", lane.topic, lane.endpoint)
        };
        let pending = if lane.pending > i64::from(COUNTED) {
            format!("{COUNTED}+")
        } else {
            lane.pending.to_string()
        };
        let head = format!(
            "{:<48} {pending:>8} {:>10} {:>10}",
            cut(&topic, 48),
            lane.oldest_seconds.map_or("-".into(), age),
            lane.due_in.map_or("-".into(), |due| if due <= 0.0 {
                "now".into()
            } else {
                age(due)
            })
        );
        let unrouted = match (lane.unrouted, lane.endpoint.is_empty()) {
            (false, _) => "",
            (true, true) => "  no route",
            (true, false) => "  no such endpoint, or no route",
        };
        text::wrapped(&head, unrouted, Some((LANE, Colour::Red)));
    }
    if status.lanes.is_empty() {
        say!("nothing is pending");
    }
    if !status.dead_letters.is_empty() {
        say!(
            "\n{:<30} {:<12} {:>8} {:>10}",
            "DEAD LETTERS",
            "REASON",
            "COUNT",
            "NEWEST"
        );
        for dead in &status.dead_letters {
            say!(
                "{:<30} {:<12} {:>8} {:>10}",
                match dead.endpoint.as_str() {
                    "" => "(no route)".into(),
                    endpoint => cut(endpoint, 30),
                },
                dead.reason,
                dead.count,
                age(dead.newest_seconds)
            );
        }
    }
}
