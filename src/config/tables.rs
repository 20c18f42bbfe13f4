//! The tables of the file, one function each: every key, its default and its range stand here and nowhere else.

mod alerts;
mod apart;
mod auth;
mod batch;
mod database;
mod format;
mod guard;
mod http;
mod proxy;
mod sagas;
mod schedules;
mod sending;
mod tls;
mod tracing;

use std::time::Duration;

use reqwest::Url;

use super::{reader::Section, units};
use crate::{
    delivery,
    limit::{Breaker, Limits, Rate},
    maintenance,
    message::Class,
    relay,
    retry::{self, Action, Actions, Backoff},
    route::{OnDead, Order, Pattern, Route, Routes, Target},
    store::{History, Retention},
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIB: usize = 1 << 20;

pub(crate) use alerts::alerts;
pub(crate) use database::database;
pub(crate) use http::{http, webhooks};
pub(crate) use sagas::sagas;
pub(crate) use schedules::schedules;
pub(crate) use tracing::tracing;

pub(crate) fn relay(section: &Section<'_>, host: &str) -> relay::Config {
    // Replicas differ in their name, and should still have one digest.
    let name = section.aside().text("name", r#"a name such as "relay-1""#);
    relay::Config {
        name: name.unwrap_or_else(|| host.to_owned()),
        lease: section.duration("lease", 15 * SECOND, SECOND..=10 * MINUTE),
        poll: section.duration("poll", 200 * MILLISECOND, 10 * MILLISECOND..=MINUTE),
        doorbell: section.flag("doorbell", true),
        idle: 5 * SECOND,
        batch: section.count("batch", 200, 1..=1000),
        concurrency: section.count("concurrency", 1024, 1..=100_000),
        memory: section.size("memory", 64 * MIB, MIB..),
        grace: section.duration("grace", 25 * SECOND, Duration::ZERO..=HOUR),
        max_due_age: None,
        max_lost: section.count("max_lost", 5, 2..=100),
    }
}

pub(crate) fn history(section: &Section<'_>) -> maintenance::Config {
    let attempts = section.duration("attempts", 30 * DAY, DAY..);
    let successes = section.duration("successes", attempts, DAY..);
    for (key, time) in [("attempts", attempts), ("successes", successes)] {
        let whole = time.as_millis().is_multiple_of(DAY.as_millis());
        section.check(&[key], whole, || {
            "must be whole days, as the partitions of the history are".into()
        });
    }
    section.check(&["successes"], successes <= attempts, || {
        "must not be longer than attempts, with which they are kept".into()
    });
    maintenance::Config {
        keep: Retention {
            attempts,
            successes,
            delivered: section.duration("delivered", DAY, Duration::ZERO..),
        },
        requests: section.duration("requests", 7 * DAY, HOUR..),
        sagas: section.duration("sagas", 30 * DAY, HOUR..),
        record: record(section),
    }
}

fn record(section: &Section<'_>) -> History {
    const EXPECTED: &str = r#""all", "failures" or "none""#;
    let all = [History::All, History::Failures, History::None];
    let record = section.optional("record", EXPECTED, |text| {
        let found = all.into_iter().find(|record| record.as_str() == text);
        found.ok_or_else(|| format!("expected {EXPECTED}, found {text:?}"))
    });
    record.unwrap_or_default()
}

/// An entry of `[[endpoints]]`, right or wrong, as a route sees it.
pub(crate) struct Entry<'r> {
    name: String,
    /// With what it inherits.
    section: Section<'r>,
}

/// The endpoints that are right, and the entries of all of them, so that a route to a wrong one is not wrong as well.
pub(crate) fn endpoints<'r>(root: &Section<'r>) -> (Vec<delivery::Endpoint>, Vec<Entry<'r>>) {
    const NAME: &str = r#"a name such as "billing""#;
    const URL: &str = r#"a URL such as "http://127.0.0.1:9000/hook""#;
    let defaults = root.section("defaults");
    // For what is wrong there, should there be no endpoint that inherits it.
    endpoint(&defaults.aside(), None, None);
    let entries = root.sections("endpoints");
    if entries.as_ref().is_some_and(Vec::is_empty) {
        let message = "no endpoints: at least one [[endpoints]] with a name and a url is needed";
        root.problem("endpoints", message.into());
    }
    let mut names: Vec<Entry<'r>> = Vec::new();
    let mut list = Vec::new();
    for mut entry in entries.into_iter().flatten() {
        let mut written = None;
        let name = entry.aside().required("name", NAME, |text| {
            let twice = names.iter().any(|entry| entry.name == text);
            written = Some(text.to_owned());
            let name = endpoint_name(text)?;
            if twice {
                return Err(format!("there is another endpoint {name:?}"));
            }
            Ok(name)
        });
        if let Some(name) = &name {
            entry = entry.named("endpoints", name);
        }
        let url = entry.required("url", URL, endpoint_url);
        let section = entry.under(&defaults);
        list.extend(endpoint(&section, name, url));
        names.extend(written.map(|name| Entry { name, section }));
    }
    (list, names)
}

/// All that `[defaults]` may hold. Name and URL come last, so that without them everything else is still read.
fn endpoint(
    section: &Section<'_>,
    name: Option<String>,
    url: Option<Url>,
) -> Option<delivery::Endpoint> {
    let timeout = section.duration("timeout", 10 * SECOND, MILLISECOND..=HOUR);
    let mut connect_timeout = section.duration("connect_timeout", 3 * SECOND, MILLISECOND..);
    if !section.has("connect_timeout") {
        // Where only the time-out is shortened, what is inherited gives way.
        connect_timeout = connect_timeout.min(timeout);
    }
    let keys = ["connect_timeout", "timeout"];
    section.check(&keys, connect_timeout <= timeout, || {
        let timeout = units::show_duration(timeout);
        format!("must not be longer than timeout, which is {timeout}")
    });
    let idempotency = sending::idempotency(section);
    let auth = auth::auth(section, name.is_some());
    let format = format::format(section, name.is_some());
    format::check(section, &format, &auth, &idempotency);
    let guard = guard::guard(section);
    let endpoint = delivery::Endpoint {
        timeout,
        connect_timeout,
        http_version: sending::http_version(section),
        concurrency: section.count("concurrency", 64, 1..=10_000),
        retry: policy(&section.section("retry"), actions(section)),
        limits: limits(section),
        sign: sending::sign(section),
        idempotency,
        tls: tls::tls(section, name.is_some()),
        batch: batch::batch(section),
        details: sending::details(section),
        trace: section.flag("trace", true),
        callbacks: None,
        proxy: proxy::proxy(section, guard.is_on()),
        guard,
        auth,
        format,
        name: name?,
        url: url?,
    };
    tls::check(section, &endpoint);
    guard::check(section, &endpoint);
    proxy::check(section, &endpoint);
    batch::check(section, &endpoint);
    Some(endpoint)
}

fn policy(section: &Section<'_>, actions: Actions) -> retry::Policy {
    let default = retry::Policy::default();
    retry::Policy {
        backoff: backoff(section),
        max_attempts: section.count("max_attempts", default.max_attempts, 1..=1000),
        max_age: section.duration("max_age", default.max_age, Duration::ZERO..),
        max_throttled: section.count("max_throttled", default.max_throttled, 0..=1_000_000),
        actions,
    }
}

/// What holds over all relays together.
fn limits(section: &Section<'_>) -> Limits {
    let most = i32::MAX.unsigned_abs();
    let max_in_flight =
        section.optional_count("max_in_flight", "a whole number such as 10", 1..=most);
    let per_second = section.optional("rate", r#"a rate such as "100/s" or "600/m""#, units::rate);
    let burst = section.optional_count("burst", "a whole number such as 20", 1..=most);
    section.check(&["burst"], per_second.is_some() || burst.is_none(), || {
        "means something only with rate".into()
    });
    let rate = per_second.map(|per_second| Rate {
        per_second,
        burst: burst.map_or(per_second.max(1.0), f64::from),
    });
    Limits {
        max_in_flight,
        rate,
        breaker: breaker(&section.section("breaker")),
    }
}

fn breaker(section: &Section<'_>) -> Option<Breaker> {
    let default = Breaker::default();
    let on = section.flag("enabled", true);
    let breaker = Breaker {
        ratio: section.real("ratio", default.ratio, 0.01..=1.0),
        minimum: section.count("minimum", default.minimum, 1..=1_000_000),
        window: section.duration("window", default.window, SECOND..=HOUR),
        pause: section.duration("pause", default.pause, 100 * MILLISECOND..=HOUR),
        cap: section.duration("cap", default.cap, 100 * MILLISECOND..=DAY),
        probes: section.count("probes", default.probes, 1..=1000),
        ramp: section.duration("ramp", default.ramp, MILLISECOND..=HOUR),
    };
    section.check(&["cap", "pause"], breaker.pause <= breaker.cap, || {
        let [pause, cap] = [breaker.pause, breaker.cap].map(units::show_duration);
        format!("the first pause (pause = {pause}) is longer than any may be (cap = {cap})")
    });
    on.then_some(breaker)
}

/// Exceptions from the status policy: `404 = "dead"`, `5xx = "retry"`, `timeout = "dead"`.
fn actions(section: &Section<'_>) -> Actions {
    const WORDS: [(&str, Action); 4] = [
        ("success", Action::Success),
        ("retry", Action::Retry),
        ("dead", Action::Dead),
        ("pause", Action::Pause),
    ];
    let mut actions = Actions::default();
    for (answer, action) in section.words("statuses", &WORDS, answer) {
        match answer {
            Answer::Status(status) => drop(actions.statuses.insert(status, action)),
            Answer::Hundred(hundred) => drop(actions.hundreds.insert(hundred, action)),
            Answer::Class(class) => drop(actions.classes.insert(class, action)),
        }
    }
    actions
}

/// What an exception is about.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Status(u16),
    Hundred(u16),
    Class(Class),
}

fn answer(text: &str) -> Result<Answer, String> {
    const ERRORS: [Class; 8] = [
        Class::Dns,
        Class::Connect,
        Class::ConnectTimeout,
        Class::Tls,
        Class::Reset,
        Class::Protocol,
        Class::Timeout,
        Class::Unsendable,
    ];
    if let Some(class) = ERRORS.into_iter().find(|class| class.as_str() == text) {
        return Ok(Answer::Class(class));
    }
    let digits = text.strip_suffix("xx").unwrap_or(text);
    match (digits.parse::<u16>(), digits == text) {
        (Ok(status @ 200..=599), true) => Ok(Answer::Status(status)),
        (Ok(hundred @ 2..=5), false) => Ok(Answer::Hundred(hundred)),
        _ => {
            let errors: Vec<&str> = ERRORS.iter().map(|class| class.as_str()).collect();
            Err(format!(
                "is no status (200 to 599), no class (2xx to 5xx) and no error ({})",
                errors.join(", ")
            ))
        }
    }
}

fn backoff(section: &Section<'_>) -> Backoff {
    let base = section.duration("base", SECOND, MILLISECOND..);
    let factor = section.real("factor", 2.0, 1.0..=100.0);
    let cap = section.duration("cap", HOUR, MILLISECOND..);
    section.check(&["cap", "base"], base <= cap, || {
        let [base, cap] = [base, cap].map(units::show_duration);
        format!("the first delay (base = {base}) is longer than any may be (cap = {cap})")
    });
    let decorrelated = section.choice("jitter", "full", &[("full", false), ("decorrelated", true)]);
    let delays = section.list(
        "delays",
        r#"a list of durations such as ["5s", "1m", "1h"]"#,
        |text| {
            let delay = units::duration(text)?;
            if delay < MILLISECOND {
                Err("must be at least 1ms".into())
            } else {
                Ok(delay)
            }
        },
    );
    section.check(
        &["delays"],
        delays.as_ref().is_none_or(|delays| !delays.is_empty()),
        || "must hold one duration at least".into(),
    );
    for key in ["base", "factor", "cap", "jitter"] {
        section.check(&[key], delays.is_none() || !section.has(key), || {
            "means nothing beside delays, which says every delay".into()
        });
    }
    section.check(&["factor"], !decorrelated || !section.has("factor"), || {
        r#"means nothing with jitter = "decorrelated", where each delay grows from the last one"#.into()
    });
    match delays {
        Some(delays) if !delays.is_empty() => Backoff::Fixed { delays },
        _ if decorrelated => Backoff::Decorrelated { base, cap },
        _ => Backoff::Full { base, factor, cap },
    }
}

pub(crate) fn routes(root: &Section<'_>, endpoints: &[Entry<'_>]) -> Routes {
    let entries = root.sections("routes");
    if entries.as_ref().is_some_and(Vec::is_empty) {
        let message = "no routes: at least one [[routes]] with topic and to is needed";
        root.problem("routes", message.into());
    }
    let entries = entries.into_iter().flatten();
    Routes::new(
        entries
            .filter_map(|entry| route(&entry, endpoints))
            .collect(),
    )
}

fn route(section: &Section<'_>, endpoints: &[Entry<'_>]) -> Option<Route> {
    let topic = section.required("topic", r#"a pattern such as "order.*""#, Pattern::parse);
    let order = order(section);
    let to = section.required_list("to", r#"a list of endpoints such as ["billing"]"#);
    let retry = section.section("retry");
    let known = |name: &String| endpoints.iter().any(|endpoint| endpoint.name == *name);
    if !to.iter().flatten().any(known) {
        // For what is wrong there, should there be no endpoint that it stands before.
        policy(&retry.aside(), Actions::default());
    }
    let to = to?;
    if let Err(wrong) = targets(&to, endpoints) {
        section.problem("to", wrong);
        return None;
    }
    let to = to.iter().map(|name| target(&retry, name, endpoints));
    let to = to.collect();
    let topic = topic?;
    Some(Route { topic, to, order })
}

/// Whether these are endpoints that a topic can go to, each once.
fn targets(to: &[String], endpoints: &[Entry<'_>]) -> Result<(), String> {
    if to.is_empty() {
        return Err("must name an endpoint".into());
    }
    for (position, name) in to.iter().enumerate() {
        let shown = units::quoted(name);
        let known = endpoints.iter().any(|endpoint| endpoint.name == *name);
        // Where there are no endpoints at all, that is the problem.
        if !endpoints.is_empty() && !known {
            let known = endpoints.iter().map(|known| units::quoted(&known.name));
            let known: Vec<String> = known.collect();
            return Err(format!(
                "there is no endpoint {shown}, only {}",
                known.join(", ")
            ));
        }
        if to[..position].contains(name) {
            return Err(format!("names endpoint {shown} twice"));
        }
    }
    Ok(())
}

/// An endpoint of a route, whose `retry` stands before that of the endpoint, key by key.
fn target(retry: &Section<'_>, name: &str, endpoints: &[Entry<'_>]) -> Target {
    let own = endpoints.iter().find(|endpoint| endpoint.name == name);
    let own = own.filter(|_| retry.given());
    let policy = own.map(|endpoint| {
        let retry = retry.within(name).under(&endpoint.section.section("retry"));
        policy(&retry, actions(&endpoint.section.aside()))
    });
    Target {
        endpoint: name.into(),
        retry: policy,
    }
}

fn order(section: &Section<'_>) -> Order {
    let by_key = section.choice("order", "none", &[("none", false), ("key", true)]);
    let dead = [("hold", OnDead::Hold), ("continue", OnDead::Continue)];
    let on_dead = section.choice("on_dead", "hold", &dead);
    section.check(&["on_dead"], by_key || !section.has("on_dead"), || {
        r#"means something only with order = "key""#.into()
    });
    if by_key {
        Order::Key(on_dead)
    } else {
        Order::None
    }
}

fn endpoint_name(text: &str) -> Result<String, String> {
    let right = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if !(1..=63).contains(&text.len()) || !text.chars().all(right) {
        let found = units::quoted(text);
        return Err(format!(
            "must be 1 to 63 of a-z, 0-9, _ and -, found {found}"
        ));
    }
    Ok(text.to_owned())
}

/// Of a URL that is wrong no more than the scheme is shown: it may hold credentials, or be the database's.
fn endpoint_url(text: &str) -> Result<Url, String> {
    format::fields(text)?;
    // The parser writes the braces of a field like this; those that were written so are no field.
    plain_url(&text.replace("%7B", "%7b").replace("%7D", "%7d"))
}

fn plain_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "must be http or https, found {}",
            units::quoted(url.scheme())
        ));
    }
    // The parser forgives a missing host and takes the first part of the path for it.
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    if rest.starts_with(['/', '\\']) || rest.is_empty() {
        return Err("must have a host after http:// or https://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold credentials: those in a URL end up in logs".into());
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment (what follows #): it would not be sent".into());
    }
    Ok(url)
}
