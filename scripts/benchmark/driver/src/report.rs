//! What was found: a line of JSON for each run, a table, and last the targets in one line.
use serde_json::{Map, Value, json};

/// A part of the whole that can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// Drain rates and CPU of all contenders: p1, p2, p3.
    Drain,
    /// What a message costs the database: p4.
    Cost,
    /// From commit to request: p5.
    Latency,
    /// Receivers that take their time: p13.
    Slow,
    /// Memory while idle, size, start: p9.
    Footprint,
    /// Memory with very many rows due: p9_due.
    Due,
    /// Relays with nothing to do: p10.
    Idle,
    /// One endpoint of ten hangs: p11.
    Isolation,
    /// Several relays at one endpoint: p12.
    Relays,
    /// The application's insert rate with the doorbell: p6.
    Doorbell,
    /// Claims over large tables: p8.
    Large,
    /// An old snapshot pins the xmin horizon: p7.
    Pinned,
    /// Memory over a million messages, and with large payloads in a small container: p14.
    Memory,
    /// An application's inserts while a migration runs: p15.
    Migrate,
}

/// A target: its name, its bound, and what it is.
pub(crate) struct Target {
    name: &'static str,
    bound: Bound,
    text: &'static str,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// For comparison only.
    Told,
}

use Bound::{AtLeast, AtMost, Told};

/// All of them, in the order of the report.
const TARGETS: &[Target] = &[
    target("p1", AtLeast(0.5), "drain rate ÷ bare loop"),
    target(
        "p2",
        AtLeast(1.5),
        "drain rate ÷ graphile_worker (Rust, batched)",
    ),
    target(
        "p2_outbox",
        AtLeast(3.5),
        "drain rate ÷ outbox-pattern-processor, tuned",
    ),
    target(
        "p2_outbox_default",
        Told,
        "drain rate ÷ outbox-pattern-processor as it comes",
    ),
    target(
        "p2_graphile",
        AtLeast(3.0),
        "drain rate ÷ graphile-worker (npm)",
    ),
    target("p2_pgboss", AtLeast(3.0), "drain rate ÷ pg-boss"),
    target("p2_bullmq", AtLeast(3.0), "drain rate ÷ BullMQ on Redis"),
    target(
        "p3",
        AtMost(1.5),
        "relay's CPU per message ÷ bare loop's per request",
    ),
    target(
        "p4",
        AtMost(40.0),
        "database CPU per message, µs, 2,048 more in flight elsewhere",
    ),
    target("p4_fifo", AtMost(60.0), "the same in order per key, µs"),
    target("p4_wal", AtMost(1.2), "WAL per message, kB"),
    target("p4_dead", AtMost(1.1), "dead tuples per message"),
    target(
        "p4_update",
        AtMost(0.6),
        "p4 ÷ a lease by UPDATE of each row",
    ),
    target(
        "pgq",
        Told,
        "database CPU per event of PgQ's consumer and ticker, µs",
    ),
    target(
        "pgq_wal",
        Told,
        "WAL per event of PgQ's consumer and ticker, kB",
    ),
    target(
        "p5_p50",
        AtMost(1.5),
        "commit → request, 200 messages/s, p50 ms",
    ),
    target("p5_p99", AtMost(10.0), "… p99 ms"),
    target(
        "p5_2000_p99",
        AtMost(25.0),
        "commit → request, 2,000 messages/s, p99 ms",
    ),
    target(
        "p5_open_p50",
        AtMost(1.5),
        "200/s, transactions open 20 ms after the INSERT, p50 ms",
    ),
    target("p5_open_p99", AtMost(10.0), "… p99 ms"),
    target(
        "p6",
        AtLeast(0.95),
        "insert rate with the doorbell ÷ without, lowest of 1, 8, 32 writers",
    ),
    target(
        "p6_open",
        AtLeast(0.95),
        "… with transactions open 20 ms after the INSERT",
    ),
    target(
        "p7_rate",
        AtLeast(0.8),
        "drain rate under a pinned xmin ÷ without, in order, 5,000 keys",
    ),
    target("p7_claim", AtMost(1.2), "… claim time"),
    target(
        "p7_loose_rate",
        AtLeast(0.8),
        "drain rate under a pinned xmin ÷ without, no order",
    ),
    target("p7_loose_claim", AtMost(1.2), "… claim time"),
    target(
        "p8_backoff",
        AtMost(1.5),
        "claim time beside rows in backoff ÷ empty table",
    ),
    target(
        "p8_breaker",
        AtMost(1.5),
        "… beside ready rows behind an open breaker",
    ),
    target("p8_key", AtMost(1.5), "… beside rows of one closed key"),
    target("p8_history", AtMost(1.5), "… after a long history"),
    target(
        "p8_discover_1000",
        Told,
        "look for lanes, 1,000 of them, ms",
    ),
    target(
        "p8_discover_10000",
        Told,
        "look for lanes, 10,000 of them, ms",
    ),
    target("p9", AtMost(15.0), "memory, idle, MB"),
    target("p9_due", AtMost(40.0), "memory with very many rows due, MB"),
    target("p9_binary", AtMost(10.0), "stripped binary, MB"),
    target("p9_start", AtMost(100.0), "start → first delivery, ms"),
    target(
        "p10",
        AtMost(1.5),
        "transactions/s of an idle relay with the doorbell",
    ),
    target("p10_50", AtMost(1.5), "… each, of 50 idle relays together"),
    target("p10_cpu", AtMost(0.1), "CPU of an idle relay, % of a core"),
    target(
        "p10_50_cpu",
        Told,
        "CPU of the database under 50 idle relays, % of a core",
    ),
    target(
        "p11",
        AtMost(1.2),
        "p99 of nine endpoints while the tenth hangs ÷ without",
    ),
    target(
        "p12",
        AtLeast(1.0),
        "rate of 2, 4, 8 relays at one endpoint ÷ that of one, lowest",
    ),
    target(
        "p12_duplicates",
        AtMost(0.0),
        "messages that came twice in p12",
    ),
    target(
        "p13",
        AtLeast(0.8),
        "drain rate ÷ bare loop, receiver takes 5 ms",
    ),
    target(
        "p13_slow",
        AtLeast(0.9),
        "share of the concurrency filled, receiver takes 500 ms",
    ),
    target(
        "p14_slope",
        AtMost(1.0),
        "memory gained over a million messages, MiB",
    ),
    target(
        "p14_large",
        AtMost(64.0),
        "memory with 100 × 10 MB, relay.memory = 8 MiB, MiB",
    ),
    target(
        "p14_many",
        AtMost(64.0),
        "memory with 1 M × 18 kB due, relay.memory = 16 MiB, MiB",
    ),
    target(
        "p15",
        AtMost(1000.0),
        "slowest INSERT while migrate runs, 5 M rows pending, ms",
    ),
];

const fn target(name: &'static str, bound: Bound, text: &'static str) -> Target {
    Target { name, bound, text }
}

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Report {
    figures: Map<String, Value>,
    tables: Vec<String>,
    notes: Vec<String>,
}

// === impl Report ===

impl Report {
    /// One line of JSON, now.
    pub(crate) fn line(&self, section: &str, value: &Value) {
        let mut line = Map::new();
        line.insert("section".to_owned(), json!(section));
        if let Value::Object(value) = value {
            line.extend(value.clone());
        }
        println!("{}", Value::Object(line));
    }

    /// A target's figure. What is no number was not measured.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        debug_assert!(TARGETS.iter().any(|target| target.name == name), "{name}");
        if value.is_finite() {
            self.figures.insert(name.to_owned(), round(value));
        }
    }

    /// A row of one of the tables at the end.
    pub(crate) fn row(&mut self, row: String) {
        self.tables.push(row);
    }

    /// What a reader must know to understand the figures.
    pub(crate) fn note(&mut self, note: &str) {
        eprintln!("bench: {note}");
        self.notes.push(note.to_owned());
    }

    /// The tables, and the last line.
    pub(crate) fn close(&self) {
        println!();
        for row in &self.tables {
            println!("{row}");
        }
        println!(
            "\n{:<19} {:>9}  {:<9} {:<5} what",
            "target", "figure", "bound", ""
        );
        let mut all = Map::new();
        for target in TARGETS {
            let value = self
                .figures
                .get(target.name)
                .cloned()
                .unwrap_or(Value::Null);
            println!("{}", target.line(&value));
            all.insert(target.name.to_owned(), value);
        }
        println!();
        for note in &self.notes {
            println!("note: {note}");
        }
        println!("{}", Value::Object(all));
    }
}

// === impl Target ===

impl Target {
    fn line(&self, value: &Value) -> String {
        let (bound, good) = match (&self.bound, value.as_f64()) {
            (AtLeast(bound), value) => (format!(">= {bound}"), value.map(|value| value >= *bound)),
            (AtMost(bound), value) => (format!("<= {bound}"), value.map(|value| value <= *bound)),
            (Told, _) => (String::new(), None),
        };
        let word = match (good, value) {
            (_, Value::Null) => "-",
            (None, _) => "",
            (Some(true), _) => "met",
            (Some(false), _) => "MISS",
        };
        let value = value
            .as_f64()
            .map_or_else(|| "null".to_owned(), |value| value.to_string());
        format!(
            "{:<19} {value:>9}  {bound:<9} {word:<5} {}",
            self.name, self.text
        )
    }
}

/// To three digits, which is more than the noise allows.
pub(crate) fn round(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(0);
    }
    let digits = 10f64.powf(2.0 - value.abs().log10().floor());
    let value = (value * digits).round() / digits;
    if value.fract() == 0.0 {
        return json!(value as i64);
    }
    json!(value)
}

/// Not a number where there is nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that so great a share of them is not above.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    if values.is_empty() {
        return f64::NAN;
    }
    let place = ((values.len() - 1) as f64 * share).round() as usize;
    values[place]
}
