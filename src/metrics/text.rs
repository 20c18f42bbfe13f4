//! The two texts that Prometheus reads: `OpenMetrics` 1.0, and the older format.

use std::{collections::HashSet, fmt};

use prometheus_client::{encoding::text::encode as openmetrics, registry::Registry};

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4 of the format of Prometheus.
    Prometheus,
    /// Version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The one that whoever asks with this `Accept` header would rather have.
    pub fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn encode(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Into a string nothing fails to be written.
    if let Err(fmt::Error) = openmetrics(&mut text, registry) {
        text.clear();
    }
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => older(&text),
    }
}

/// In the older format a counter is described under the name that its samples have, and there are no units and no end.
fn older(text: &str) -> String {
    let counters: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len() + 1024);
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), _, _) => continue,
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                out.push_str(&format!("# {what} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
