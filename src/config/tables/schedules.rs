//! `[[schedules]]`: messages that come by the clock.

use serde_json::{Map, Value, value::RawValue};

use super::{Section, endpoint_name, sending};
use crate::{
    config::units::quoted,
    route::Routes,
    schedule::{Missed, Schedule, Times},
};

/// Fire times that are made up for with `missed = "all"`, where nobody says.
const MADE_UP_FOR: u32 = 100;

pub(crate) fn schedules(root: &Section<'_>, routes: &Routes) -> Vec<Schedule> {
    const NAME: &str = r#"a name such as "nightly""#;
    const CRON: &str = r#"a cron expression such as "0 2 * * *""#;
    const ZONE: &str = r#"a time zone such as "Europe/Berlin""#;
    let mut names: Vec<String> = Vec::new();
    let mut list = Vec::new();
    for mut entry in root.sections("schedules").into_iter().flatten() {
        let name = entry.aside().required("name", NAME, |text| {
            let name = endpoint_name(text)?;
            match names.contains(&name) {
                true => Err(format!("there is another schedule {name:?}")),
                false => Ok(name),
            }
        });
        if let Some(name) = &name {
            names.push(name.clone());
            entry = entry.named("schedules", name);
        }
        let zone = entry.optional("time_zone", ZONE, |text| {
            Times::zone(text)?;
            Ok(text.to_owned())
        });
        let zone = Times::zone(zone.as_deref().unwrap_or("UTC"));
        let cron = entry.required("cron", CRON, |text| {
            Times::new(text, jiff::tz::TimeZone::UTC)
                .map_err(|error| format!("{} is no cron expression: {error}", quoted(text)))?;
            Ok(text.to_owned())
        });
        let times = cron.zip(zone.ok());
        let times = times.and_then(|(cron, zone)| Times::new(&cron, zone).ok());
        let topic = entry.required("topic", r#"a topic such as "report.nightly""#, |text| {
            sending::routed(text, routes)
        });
        let key = entry.text("key", r#"a key such as "shop-1""#);
        let kind = entry.optional("type", r#"a type such as "nightly""#, sending::topic);
        let payload = entry.optional("payload", r#"JSON such as '{"all": true}'"#, |text| {
            let json = serde_json::from_str::<&RawValue>(text);
            json.map_err(|error| format!("is no JSON: {error}"))?;
            Ok(text.to_owned())
        });
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let headers = entry.map("headers", "the header's value as a text", same, header);
        let all = [("skip", "skip"), ("once", "once"), ("all", "all")];
        let missed = entry.choice("missed", "once", &all);
        let most = entry.optional_count("max_missed", "a whole number such as 100", 1..=1000);
        entry.check(&["max_missed"], missed == "all" || most.is_none(), || {
            r#"means something with missed = "all" only"#.into()
        });
        if let (Some(name), Some(times), Some(topic)) = (name, times, topic) {
            let headers = headers.into_iter();
            let headers: Map<String, Value> =
                headers.map(|(name, value)| (name, value.into())).collect();
            list.push(Schedule {
                name,
                times,
                missed: match missed {
                    "skip" => Missed::Skip,
                    "all" => Missed::All(most.unwrap_or(MADE_UP_FOR) as usize),
                    _ => Missed::Once,
                },
                topic,
                key,
                kind,
                payload,
                headers: headers.into(),
            });
        }
    }
    list
}

fn header(name: &str, text: &str) -> Result<String, String> {
    let parsed = sending::header_name(name)?;
    if parsed.as_str().starts_with("schedule-") {
        return Err("is a header that the schedule sets".into());
    }
    let visible = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    match text.bytes().all(visible) {
        true => Ok(text.to_owned()),
        false => Err("may have visible ASCII characters only".into()),
    }
}
