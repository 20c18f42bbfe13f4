//! The commands that answer and end.

use super::{Failure, text::show};
use crate::{
    config::Config,
    delivery::{Client, Endpoint},
    relay,
    retry::{self, Backoff},
    route::{Overlap, Route},
    saga::{self, OnExhausted},
    store::{self, Bell, Store},
};

pub(super) async fn migrate(
    store: &Store,
    guard: Option<&str>,
    accept_copy: bool,
    doorbell: Option<bool>,
) -> Result<(), Failure> {
    let migrated = store.migrate(guard, accept_copy).await?;
    if let Some(on) = doorbell {
        store.set_doorbell(on).await?;
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

pub(super) async fn check(config: &Config) -> Result<(), Failure> {
    say!("configuration: good");
    for endpoint in &config.endpoints {
        say!("\nendpoint {} → {}", endpoint.name, endpoint.shown());
        say!(
            "  up to {} requests at once from this relay, {} each (connect {})",
            endpoint.concurrency,
            show(endpoint.timeout),
            show(endpoint.connect_timeout)
        );
        if let Some(batch) = &endpoint.batch {
            say!(
                "  batches of up to {} messages and {} bytes of payload in one request",
                batch.messages,
                batch.bytes
            );
            if batch.messages > config.relay.batch {
                say!(
                    "  warning: no batch has more than {} messages, for a claim brings no more (relay.batch)",
                    config.relay.batch
                );
            }
        }
        print_retries(&endpoint.retry, "");
        if endpoint.timeout > config.relay.grace {
            say!(
                "  warning: a request may take {}, at shutdown it is given {} only (relay.grace): it may be cut off and sent again",
                show(endpoint.timeout),
                show(config.relay.grace)
            );
        }
        for warning in endpoint.warnings(&endpoint.retry, show) {
            say!("  warning: {warning}");
        }
        Client::new(endpoint).map_err(relay::Error::from)?;
        let leads = |route: &Route| route.endpoints().any(|name| name == endpoint.name);
        if !config.routes.iter().any(leads) {
            say!("  warning: no route leads to it");
        }
    }
    if let Some(warning) = total_warning(config) {
        say!("\nwarning: {warning}");
    }
    say!("");
    for route in config.routes.iter() {
        say!("topic {route}");
        print_own_retries(config, route);
    }
    for (late, early) in config.routes.unreachable() {
        say!(
            "warning: the route {late} is never asked: {} stands before it and takes all its topics",
            early.topic
        );
    }
    for Overlap {
        early,
        late,
        example,
    } in config.routes.overlapping()
    {
        say!(
            "warning: the routes {early} and {late} share topics such as {example}: the first of them decides, which is {}",
            early.topic
        );
    }
    print_sagas(config);
    print_alerts(config)?;
    if let Some(collector) = &config.tracing {
        Client::new(&collector.endpoint).map_err(relay::Error::from)?;
        let url = collector.endpoint.traced_url();
        say!("\ntracing: spans go to {url} as {}", collector.service);
    }
    let store = Store::new(&config.database)?;
    let notes = store.check().await?;
    say!(
        "\ndatabase: reachable, schema version {}",
        store::SCHEMA_VERSION
    );
    for note in notes {
        say!("  warning: {note}");
    }
    print_schedules(config, &store).await?;
    check_doorbell(config, &store).await
}

/// What each step of each plan will do.
fn print_sagas(config: &Config) {
    for plan in &config.sagas.plans {
        say!("\nsaga {}", plan.name);
        for step in &plan.steps {
            let undo = step.undo.as_deref();
            let undo = undo.map_or_else(String::new, |undo| format!(", undo {undo}"));
            let pivot = if step.pivot { ", the pivot" } else { "" };
            let (name, to, path) = (&step.name, &step.to, &step.r#do);
            say!("  {name} → {to}: {path}{undo}{pivot}");
            let exhausted = match step.on_exhausted {
                OnExhausted::Park => "the saga is parked",
                OnExhausted::Compensate => "the saga goes back",
            };
            say!("    after its last attempt {exhausted}");
            let endpoint = config
                .endpoints
                .iter()
                .find(|endpoint| endpoint.name == *to);
            if let Some(timeout) = step.timeout {
                say!("    a request may take {}", show(timeout));
            }
            if step.is_async {
                let lapse = step.lapse.unwrap_or(saga::LAPSE);
                say!(
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
                print_retries(retry, "");
            }
            if let (Some(_), Some(retry)) = (&step.undo_retry, of(&step.undo_retry)) {
                print_retries(retry, " of the undo");
            }
        }
    }
}

/// When each schedule fires next, by the database's clock.
async fn print_schedules(config: &Config, store: &Store) -> Result<(), Failure> {
    if config.schedules.is_empty() {
        return Ok(());
    }
    let (now, _) = store.schedules(&[]).await?;
    for schedule in &config.schedules {
        say!(
            "\nschedule {} → topic {}: {} (missed: {})",
            schedule.name,
            schedule.topic,
            schedule.times.shown(),
            schedule.missed.as_str()
        );
        let mut after = now;
        for _ in 0..3 {
            let Some((next, shown)) = schedule.times.next_shown(after) else {
                break;
            };
            say!("  {shown}");
            after = next;
        }
    }
    say!("");
    Ok(())
}

/// Says who is told of what is wrong.
fn print_alerts(config: &Config) -> Result<(), Failure> {
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
    say!(
        "\nalerts: looked for every {}, told to {}",
        show(alerts.watch.every),
        to.join(", ")
    );
    Ok(())
}

/// Says whether inserts will wake this relay, and if not, why.
async fn check_doorbell(config: &Config, store: &Store) -> Result<(), Failure> {
    let poll = show(config.relay.poll);
    if !config.relay.doorbell {
        say!("doorbell: this relay does without (relay.doorbell = false), and polls every {poll}");
    } else if !store.doorbell().await?.hangs {
        say!("doorbell: {}; this relay polls every {poll}", hangs(false));
    } else if Bell::try_out(store).await? {
        say!("doorbell: {}", hangs(true));
    } else {
        say!(
            "doorbell: nothing is heard on these connections, as behind a pooler in transaction mode: while no other relay keeps \
             it, this one polls every {poll}"
        );
    }
    Ok(())
}

/// What a policy comes to when every attempt fails; `to` says where, if that is not clear.
fn print_retries(retry: &retry::Policy, to: &str) {
    let window = retry.window();
    say!(
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
        Some(attempt) => say!(
            "  the delay reaches its cap of {} after attempt {attempt}",
            show(retry.backoff.cap())
        ),
        // Without a second attempt there is no delay.
        None if window.attempts < 2 => {}
        None => {
            // Nobody has to mean what nobody has written.
            let cap = retry.backoff.cap();
            let warning = if cap == Backoff::default().cap() {
                ""
            } else {
                "warning: "
            };
            say!(
                "  {warning}the delay never reaches its cap of {}: after attempt {} of {} it is {} at most",
                show(cap),
                window.attempts - 1,
                window.attempts,
                show(retry.backoff.upper(window.attempts - 1))
            );
        }
    }
}

/// The same for the endpoints that a route tries again in a way of its own.
fn print_own_retries(config: &Config, route: &Route) {
    for target in &route.to {
        let named = |endpoint: &&Endpoint| endpoint.name == target.endpoint;
        let endpoint = config.endpoints.iter().find(named);
        if let (Some(endpoint), Some(retry)) = (endpoint, &target.retry) {
            print_retries(retry, &format!(" to {}", endpoint.name));
            for warning in endpoint.warnings(retry, show) {
                say!("  warning: {warning}");
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
