//! `[alerts]`: what is looked for, and who is told.

use std::fs;

use reqwest::Url;

use super::{DAY, HOUR, MINUTE, SECOND, apart, sending};
use crate::{
    config::{reader::Section, units},
    maintenance::alerts::{Config, Format, Webhook},
    route::Routes,
    store::{History, Watch},
};

/// The kinds, as `off` names them.
const KINDS: [&str; 6] = [
    "failures",
    "dead_letters",
    "oldest_due",
    "paused",
    "no_route",
    "sagas",
];

/// The name under which the webhook's log lines stand.
const NAME: &str = "alerts";

/// `None` without the table.
pub(crate) fn alerts(section: &Section<'_>, record: History, routes: &Routes) -> Option<Config> {
    let off = section.list("off", r#"kinds of alerts such as "paused""#, |text| {
        let known = KINDS.iter().find(|kind| **kind == text);
        known.copied().ok_or_else(|| {
            let found = units::quoted(text);
            format!("expected one of {}, found {found}", KINDS.join(", "))
        })
    });
    let off = off.unwrap_or_default();
    let on = |kind: &str| !off.contains(&kind);
    let ratio = section.real("failure_ratio", 0.5, 0.01..=1.0);
    let minimum = section.count("failure_minimum", 20, 1..=10_000);
    let dead_letters = section.count("dead_letters", 1, 1..=10_000);
    let sagas = section.count("sagas", 1, 1..=10_000);
    let span = |key, default| section.duration(key, default, SECOND..=365 * DAY);
    let [oldest_due, paused, no_route] = [
        span("oldest_due", 15 * MINUTE),
        span("paused", HOUR),
        span("no_route", MINUTE),
    ];
    let topic = section.optional("topic", r#"a topic such as "outbox.alert""#, sending::topic);
    if let Some(topic) = &topic
        && routes.of(topic).is_none()
    {
        let shown = units::quoted(topic);
        section.problem(
            "topic",
            format!("no route takes {shown}: its messages would stay pending"),
        );
    }
    let webhook = webhook(&section.section("webhook"));
    let watch = Watch {
        every: section.duration("every", 30 * SECOND, SECOND..=HOUR),
        repeat: section.duration("repeat", 4 * HOUR, MINUTE..=365 * DAY),
        window: section.duration("window", 5 * MINUTE, SECOND..=HOUR),
        failures: on("failures").then_some((ratio, minimum)),
        dead_letters: on("dead_letters").then_some(dead_letters),
        oldest_due: on("oldest_due").then_some(oldest_due),
        paused: on("paused").then_some(paused),
        no_route: on("no_route").then_some(no_route),
        sagas: on("sagas").then_some(sagas),
        webhook: webhook.is_some(),
        topic,
    };
    if !section.given() {
        return None;
    }
    if on("failures") && record != History::All {
        let message = r#"must hold "failures" unless history.record is "all": without the successes nobody knows which share fails"#;
        section.problem("off", message.into());
    }
    Some(Config { watch, webhook })
}

fn webhook(section: &Section<'_>) -> Option<Webhook> {
    let url = url(section);
    let formats = [("json", Format::Json), ("slack", Format::Slack)];
    let format = section.choice("format", "json", &formats);
    let sign = sending::sign(section);
    if section.given() && url.is_none() && !section.has("url") && !section.has("url_file") {
        section.problem(
            "url",
            "is missing: url or url_file says where notices go".into(),
        );
    }
    let mut endpoint = apart::endpoint(section, NAME, url)?;
    endpoint.sign = sign;
    Some(Webhook { endpoint, format })
}

/// Whoever has it may write there: no message and no digest shows it.
fn url(section: &Section<'_>) -> Option<Url> {
    let hidden = |message: String| format!("{message}; its value is not shown here");
    let parse = |text: &str| super::plain_url(text).map_err(hidden);
    let url = section.secret("url", r#"a URL such as "https://hooks.internal/x""#, parse);
    let file = section.path("url_file", "/run/secrets/slack");
    if section.has("url") && section.has("url_file") {
        let message = "stands beside url: only one of the two can be right";
        section.problem("url_file", message.into());
        return None;
    }
    let Some(file) = file else { return url };
    let read = fs::read_to_string(&file).map_err(|error| format!("can't be read: {error}"));
    let url = read.and_then(|text| parse(text.trim()));
    url.map_err(|message| section.problem("url_file", message))
        .ok()
}
