//! The commands that answer and end.

use serde_json::{Value, json};

use super::{Failure, text::show, verbs::answer};
use crate::{
    config::Config,
    delivery::{Client, Endpoint},
    relay,
    retry::{self, Backoff},
    route::{Overlap, Route},
    saga::{self, OnExhausted},
    store::{self, Bell, Store},
};

/// What a check finds: for people line by line, for programs at its end.
struct Report {
    json: bool,
    endpoints: Vec<Value>,
    /// The endpoint that is looked at.
    about: Option<String>,
    warnings: Vec<Value>,
}

/// A line for people.
macro_rules! tell {
    ($report:expr, $($text:tt)*) => { if !$report.json { say!($($text)*) } };
}

pub(super) async fn migrate(
    store: &Store,
    guard: Option<&str>,
    accept_copy: bool,
    doorbell: Option<bool>,
    json: bool,
) -> Result<(), Failure> {
    let migrated = store.migrate(guard, accept_copy).await?;
    if let Some(on) = doorbell {
        store.set_doorbell(on).await?;
    }
    if json {
        return answer(&json!({
            "from": migrated.from, "to": migrated.to, "doorbell": store.doorbell().await?.hangs,
            "accepted_copy": accept_copy, "guard": guard, "missing_roles": migrated.missing_roles,
        }));
    }
    match migrated.from {
        Some(from) if from == migrated.to => {
            say!("the schema is at version {from}: nothing to migrate");
        }
        Some(from) => say!("migrated from version {from} to {}", migrated.to),
        None => say!("created the outbox, version {}", migrated.to),
    }
    say!("doorbell: {}", hangs(store.doorbell().await?.hangs));
    if accept_copy {
        say!("this database is an outbox of its own now");
    }
    if let Some(guard) = guard {
        say!("relays must say guard = {guard:?} now");
    }
    for role in &migrated.missing_roles {
        say!(
            "role {role} does not exist, and this user may not create it: ask a DBA to run `CREATE ROLE {role} NOLOGIN`, \
             then run migrate again for its rights (all the SQL: `outbox-relay migrate --print`)"
        );
    }
    Ok(())
}

/// Says what a configuration will do. `json`: only what a program needs to know, when all is known.
pub(super) async fn check(config: &Config, json: bool) -> Result<(), Failure> {
    let report = &mut Report {
        json,
        endpoints: Vec::new(),
        about: None,
        warnings: Vec::new(),
    };
    tell!(report, "configuration: good");
    for endpoint in &config.endpoints {
        report.about = Some(endpoint.name.clone());
        tell!(
            report,
            "\nendpoint {} → {}",
            endpoint.name,
            endpoint.shown()
        );
        tell!(
            report,
            "  up to {} requests at once from this relay, {} each (connect {})",
            endpoint.concurrency,
            show(endpoint.timeout),
            show(endpoint.connect_timeout)
        );
        if let Some(batch) = &endpoint.batch {
            tell!(
                report,
                "  batches of up to {} messages and {} bytes of payload in one request",
                batch.messages,
                batch.bytes
            );
            if batch.messages > config.relay.batch {
                report.warn("  ", &format!("no batch has more than {} messages, for a claim brings no more (relay.batch)", config.relay.batch));
            }
        }
        let window = endpoint.retry.window();
        report.endpoints.push(json!({
            "endpoint": endpoint.name, "url": endpoint.shown(), "concurrency": endpoint.concurrency,
            "timeout": endpoint.timeout.as_secs_f64(), "connect_timeout": endpoint.connect_timeout.as_secs_f64(),
            "attempts": window.attempts, "longest": window.longest.as_secs_f64(), "average": window.average.as_secs_f64(),
        }));
        print_retries(report, &endpoint.retry, "");
        if endpoint.timeout > config.relay.grace {
            report.warn("  ", &format!("a request may take {}, at shutdown it is given {} only (relay.grace): it may be cut off and sent again", show(endpoint.timeout), show(config.relay.grace)));
        }
        for warning in endpoint.warnings(&endpoint.retry, show) {
            report.warn("  ", &warning);
        }
        Client::new(endpoint).map_err(relay::Error::from)?;
        let leads = |route: &Route| route.endpoints().any(|name| name == endpoint.name);
        let mut steps = config.sagas.plans.iter().flat_map(|plan| &plan.steps);
        if !config.routes.iter().any(leads) && !steps.any(|step| step.to == endpoint.name) {
            report.warn("  ", "no route leads to it");
        }
    }
    report.about = None;
    if let Some(warning) = total_warning(config) {
        report.warn("\n", &warning);
    }
    tell!(report, "");
    for route in config.routes.iter() {
        tell!(report, "topic {route}");
        print_own_retries(report, config, route);
    }
    for (late, early) in config.routes.unreachable() {
        report.warn(
            "",
            &format!(
                "the route {late} is never asked: {} stands before it and takes all its topics",
                early.topic
            ),
        );
    }
    for Overlap {
        early,
        late,
        example,
    } in config.routes.overlapping()
    {
        report.warn("", &format!("the routes {early} and {late} share topics such as {example}: the first of them decides, which is {}", early.topic));
    }
    print_sagas(report, config);
    print_alerts(report, config)?;
    if let Some(collector) = &config.tracing {
        Client::new(&collector.endpoint).map_err(relay::Error::from)?;
        let url = collector.endpoint.traced_url();
        tell!(
            report,
            "\ntracing: spans go to {url} as {}",
            collector.service
        );
    }
    let store = Store::new(&config.database)?;
    let notes = store.check().await?;
    tell!(
        report,
        "\ndatabase: reachable, schema version {}",
        store::SCHEMA_VERSION
    );
    for note in notes {
        report.warn("  ", &note);
    }
    let schedules = next_of_schedules(report, config, &store).await?;
    let doorbell = check_doorbell(report, config, &store).await?;
    if json {
        let (endpoints, warnings) = (&report.endpoints, &report.warnings);
        return answer(&json!({
            "endpoints": endpoints, "warnings": warnings, "schema_version": store::SCHEMA_VERSION, "doorbell": doorbell,
            "schedules": schedules,
        }));
    }
    Ok(())
}

/// What each step of each plan will do.
fn print_sagas(report: &mut Report, config: &Config) {
    for plan in &config.sagas.plans {
        tell!(report, "\nsaga {}", plan.name);
        for step in &plan.steps {
            let undo = step.undo.as_deref();
            let undo = undo.map_or_else(String::new, |undo| format!(", undo {undo}"));
            let pivot = if step.pivot { ", the pivot" } else { "" };
            let (name, to, path) = (&step.name, &step.to, &step.r#do);
            tell!(report, "  {name} → {to}: {path}{undo}{pivot}");
            let exhausted = match step.on_exhausted {
                OnExhausted::Park => "the saga is parked",
                OnExhausted::Compensate => "the saga goes back",
            };
            tell!(report, "    after its last attempt {exhausted}");
            let endpoint = config
                .endpoints
                .iter()
                .find(|endpoint| endpoint.name == *to);
            if let Some(timeout) = step.timeout {
                tell!(report, "    a request may take {}", show(timeout));
            }
            if step.is_async {
                let lapse = step.lapse.unwrap_or(saga::LAPSE);
                tell!(
                    report,
                    "    202 means not yet: the same is sent again after {}",
                    show(lapse)
                );
            }
            let of = |name: &Option<String>| {
                let named = name
                    .as_ref()
                    .and_then(|name| config.sagas.policies.get(name));
                named.or(endpoint.map(|endpoint| &endpoint.retry))
            };
            if let Some(retry) = of(&step.retry) {
                print_retries(report, retry, "");
            }
            if let (Some(_), Some(retry)) = (&step.undo_retry, of(&step.undo_retry)) {
                print_retries(report, retry, " of the undo");
            }
        }
    }
}

/// When each schedule fires next, by the database's clock.
async fn next_of_schedules(
    report: &mut Report,
    config: &Config,
    store: &Store,
) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    if config.schedules.is_empty() {
        return Ok(all);
    }
    let (now, _) = store.schedules(&[]).await?;
    for schedule in &config.schedules {
        tell!(
            report,
            "\nschedule {} → topic {}: {} (missed: {})",
            schedule.name,
            schedule.topic,
            schedule.times.shown(),
            schedule.missed.as_str()
        );
        let (mut after, mut times) = (now, Vec::new());
        for _ in 0..3 {
            let Some((next, shown)) = schedule.times.next_shown(after) else {
                break;
            };
            tell!(report, "  {shown}");
            times.push(shown);
            after = next;
        }
        all.push(json!({ "schedule": schedule.name, "topic": schedule.topic, "next": times }));
    }
    tell!(report, "");
    Ok(all)
}

/// Says who is told of what is wrong.
fn print_alerts(report: &mut Report, config: &Config) -> Result<(), Failure> {
    let Some(alerts) = &config.alerts else {
        return Ok(());
    };
    let mut to = vec!["the log".to_owned()];
    if let Some(webhook) = &alerts.webhook {
        Client::new(&webhook.endpoint).map_err(relay::Error::from)?;
        to.push(format!("a webhook at {}", webhook.shown()));
    }
    if let Some(topic) = &alerts.watch.topic {
        to.push(format!("messages of topic {topic}"));
    }
    tell!(
        report,
        "\nalerts: looked for every {}, told to {}",
        show(alerts.watch.every),
        to.join(", ")
    );
    Ok(())
}

/// Says whether inserts will wake this relay, and if not, why.
async fn check_doorbell(
    report: &mut Report,
    config: &Config,
    store: &Store,
) -> Result<&'static str, Failure> {
    let poll = show(config.relay.poll);
    Ok(if !config.relay.doorbell {
        tell!(
            report,
            "doorbell: this relay does without (relay.doorbell = false), and polls every {poll}"
        );
        "off"
    } else if !store.doorbell().await?.hangs {
        tell!(
            report,
            "doorbell: {}; this relay polls every {poll}",
            hangs(false)
        );
        "none"
    } else if Bell::try_out(store).await? {
        tell!(report, "doorbell: {}", hangs(true));
        "wakes"
    } else {
        tell!(
            report,
            "doorbell: nothing is heard on these connections, as behind a pooler in transaction mode: while no other relay keeps \
             it, this one polls every {poll}"
        );
        "unheard"
    })
}

/// What a policy comes to when every attempt fails; `to` says where, if that is not clear.
fn print_retries(report: &mut Report, retry: &retry::Policy, to: &str) {
    let window = retry.window();
    tell!(
        report,
        "  retries{to}: up to {} attempts over {} (on average {}){}",
        window.attempts,
        show(window.longest),
        show(window.average),
        if window.ended_by_age {
            format!(
                "; max_age = {} ends it before max_attempts = {} is reached",
                show(retry.max_age),
                retry.max_attempts
            )
        } else {
            String::new()
        }
    );
    match window.capped_from {
        Some(attempt) => tell!(
            report,
            "  the delay reaches its cap of {} after attempt {attempt}",
            show(retry.backoff.cap())
        ),
        // Without a second attempt there is no delay.
        None if window.attempts < 2 => {}
        None => {
            // Nobody has to mean what nobody has written.
            let cap = retry.backoff.cap();
            let text = format!(
                "the delay never reaches its cap of {}: after attempt {} of {} it is {} at most",
                show(cap),
                window.attempts - 1,
                window.attempts,
                show(retry.backoff.upper(window.attempts - 1))
            );
            match cap == Backoff::default().cap() {
                true => tell!(report, "  {text}"),
                false => report.warn("  ", &text),
            }
        }
    }
}

/// The same for the endpoints that a route tries again in a way of its own.
fn print_own_retries(report: &mut Report, config: &Config, route: &Route) {
    for target in &route.to {
        let named = |endpoint: &&Endpoint| endpoint.name == target.endpoint;
        let endpoint = config.endpoints.iter().find(named);
        if let (Some(endpoint), Some(retry)) = (endpoint, &target.retry) {
            print_retries(report, retry, &format!(" to {}", endpoint.name));
            for warning in endpoint.warnings(retry, show) {
                report.warn("  ", &warning);
            }
        }
    }
}

fn hangs(hangs: bool) -> &'static str {
    match hangs {
        true => "inserts wake a relay",
        false => "there is none (see `outbox-relay migrate --doorbell`)",
    }
}

/// An endpoint that hangs holds as many places of the total as it has slots: some must be left for the others.
fn total_warning(config: &Config) -> Option<String> {
    let largest = config.endpoints.iter().max_by_key(|one| one.concurrency)?;
    let total = config.relay.concurrency;
    let enough = match config.endpoints.len() {
        1 => total >= largest.concurrency,
        _ => total > largest.concurrency,
    };
    (!enough).then(|| {
        format!(
            "relay.concurrency = {total} leaves nothing beside endpoint {} (concurrency = {}): while that hangs, all others wait",
            largest.name, largest.concurrency
        )
    })
}

// === impl Report ===

impl Report {
    /// ... with what stands before it on its line.
    fn warn(&mut self, before: &str, text: &str) {
        tell!(self, "{before}warning: {text}");
        self.warnings
            .push(json!({ "endpoint": self.about, "warning": text }));
    }
}
