//! One TOML file, and the environment, into the configuration of every component.
//!
//! Two keys for an endpoint and two for a route are enough, today and in every later version; all else has a default:
//!
//! ```toml
//! [[endpoints]]
//! name = "billing"
//! url = "http://127.0.0.1:9000/hook"
//!
//! [[routes]]
//! topic = "order.*"
//! to = ["billing"]
//! ```
//!
//! Everything is read before anything starts, and all that is wrong is reported at once, each with its line. What comes
//! out is types that hold only what can run, so no component checks its configuration again.
//!
//! Any single value can be overridden by a variable `OUTBOX__…` named after its path: `OUTBOX__RELAY__LEASE=5s`,
//! `OUTBOX__DEFAULTS__RETRY__BASE=2s`, and for an endpoint by its name, `OUTBOX__ENDPOINTS__BILLING__URL=…` (in capitals,
//! `-` as `_`). A variable that names nothing is an error, as an unknown key is.
//!
//! To add a setting, call a getter in `tables.rs` where the component's struct is filled: that one line makes its key
//! known, checked, overridable, inherited from `[defaults]` where it belongs to an endpoint, and part of the digest.

mod reader;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod units;

use std::{collections::BTreeMap, error::Error, fmt, fs, path::Path};

pub use self::source::Source;
pub(crate) use self::units::duration;
use crate::{
    admin, delivery,
    maintenance::{self, alerts, spans},
    relay,
    route::Routes,
    schedule::Schedule,
    store,
};
use reader::Reader;

/// Everything that a relay runs by.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[database]`.
    pub database: store::Config,
    /// `[relay]`.
    pub relay: relay::Config,
    /// `[history]`.
    pub maintenance: maintenance::Config,
    /// `[alerts]`; `None`: nobody looks.
    pub alerts: Option<alerts::Config>,
    /// `[tracing]`; `None`: nobody collects spans.
    pub tracing: Option<spans::Config>,
    /// `[http]` and `[[webhooks]]`.
    pub admin: admin::Config,
    /// `[[endpoints]]`, in the order of the file; at least one.
    pub endpoints: Vec<delivery::Endpoint>,
    /// `[[routes]]`, each to one of the endpoints; at least one.
    pub routes: Routes,
    /// `[[sagas]]` and `[[retries]]`.
    pub sagas: relay::Sagas,
    /// `[[schedules]]`.
    pub schedules: Vec<Schedule>,
    /// 16 hex digits that differ where two relays would not do the same: of all effective values but secrets and the
    /// relay's name. Another version of the relay, with other settings, may have another digest for the same file.
    pub digest: String,
}

/// One thing that is wrong. No message holds a secret's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line in the file, from 1; `None` for the environment and for a table that is missing.
    pub line: Option<usize>,
    /// The key's path, `endpoints[1].url`; `environment NAME` for a variable; empty where no key is concerned.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// All that is wrong with a configuration. Shown one a line, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name.
    pub file: String,
    /// The problems: those with a line in the order of the file, then the others.
    pub list: Vec<Problem>,
}

/// Reads the file at `path` with the overrides of the process's environment.
///
/// # Errors
///
/// Everything that is wrong with the file and the overrides; one problem if the file can't be read.
pub fn load(path: &Path) -> Result<Config, Problems> {
    let source = Source::new(path)?;
    source.parse(&source.read()?)
}

/// The database alone: that of the file at `path`, or without one that of the environment (`DATABASE_URL`, and
/// `OUTBOX__DATABASE__…`), for commands that need nothing else.
///
/// # Errors
///
/// As [`load`]; without a file, a URL that is missing.
pub fn database(path: Option<&Path>) -> Result<store::Config, Problems> {
    if let Some(path) = path {
        return load(path).map(|config| config.database);
    }
    let problems = |list| Problems::new("environment", list);
    let mut variables = environment().map_err(problems)?;
    let ours = format!("{}DATABASE__", reader::PREFIX);
    variables.retain(|name, _| name == "DATABASE_URL" || name.starts_with(&ours));
    let reader = Reader::new("", &variables).map_err(problems)?;
    let database = tables::database(&reader, &reader.root().section("database"));
    reader.finish().map_err(problems)?;
    Ok(database.expect("a database that is missing or wrong is a problem"))
}

/// Makes a configuration of the text of a file, variables of the environment, and the host's name.
///
/// `file` is for messages only. The one thing that is read beyond the parameters is the file that `url_file` names.
///
/// # Errors
///
/// Everything that is wrong; if the text is not TOML, then only that.
pub fn parse(
    file: &str,
    text: &str,
    env: &BTreeMap<String, String>,
    host: &str,
) -> Result<Config, Problems> {
    let problems = |list| Problems::new(file, list);
    let reader = Reader::new(text, env).map_err(problems)?;
    let root = reader.root();
    let database = tables::database(&reader, &root.section("database"));
    let mut relay = tables::relay(&root.section("relay"), host);
    let maintenance = tables::history(&root.section("history"));
    let (mut admin, max_due_age) = tables::http(&root.section("http"));
    relay.max_due_age = max_due_age;
    let (mut endpoints, entries) = tables::endpoints(&root);
    for endpoint in &mut endpoints {
        endpoint.callbacks.clone_from(&admin.callbacks);
    }
    let routes = tables::routes(&root, &entries);
    let sagas = tables::sagas(&root, &endpoints);
    admin.webhooks = tables::webhooks(&root, &routes);
    let schedules = tables::schedules(&root, &routes);
    let alerts = tables::alerts(&root.section("alerts"), maintenance.record, &routes);
    let tracing = tables::tracing(&root.section("tracing"));
    let digest = reader.finish().map_err(problems)?;
    Ok(Config {
        database: database.expect("a database that is missing or wrong is a problem"),
        relay,
        maintenance,
        alerts,
        tracing,
        admin,
        endpoints,
        routes,
        sagas,
        schedules,
        digest,
    })
}

// === impl Problem ===

impl Problem {
    fn new(key: &str, message: String) -> Problem {
        Problem {
            line: None,
            key: key.into(),
            message,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.key.as_str()) {
            (Some(line), "") => write!(f, "line {line}: ")?,
            (Some(line), key) => write!(f, "line {line}, {key}: ")?,
            (None, "") => {}
            (None, key) => write!(f, "{key}: ")?,
        }
        f.write_str(&self.message)
    }
}

// === impl Problems ===

impl Problems {
    fn new(file: &str, mut list: Vec<Problem>) -> Problems {
        list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Problems {
            file: file.into(),
            list,
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.list.iter().enumerate() {
            let end = if position == 0 { "" } else { "\n" };
            write!(f, "{end}{}: {problem}", self.file)?;
        }
        Ok(())
    }
}

impl Error for Problems {}

// The process's environment, which nothing else in the crate reads.

#[allow(
    clippy::disallowed_methods,
    reason = "the place where the environment is read"
)]
fn environment() -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let mut variables = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else {
            continue;
        };
        match value.into_string() {
            Ok(value) => {
                variables.insert(name, value);
            }
            Err(_) if name == "DATABASE_URL" || name.starts_with(reader::PREFIX) => {
                let key = format!("environment {name}");
                problems.push(Problem::new(&key, "is not valid UTF-8".into()));
            }
            Err(_) => {}
        }
    }
    if problems.is_empty() {
        Ok(variables)
    } else {
        Err(problems)
    }
}

/// The pod's name in Kubernetes, the container's id in Docker.
fn host(environment: &BTreeMap<String, String>) -> String {
    let variable = environment.get("HOSTNAME").cloned();
    let file = || fs::read_to_string("/etc/hostname").unwrap_or_default();
    let mut host = variable.unwrap_or_default().trim().to_owned();
    if host.is_empty() {
        host = file().trim().to_owned();
    }
    if host.is_empty() {
        "relay".into()
    } else {
        host
    }
}
