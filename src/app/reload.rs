//! The configuration is read again: at SIGHUP, and when the text of its file is another one.
//!
//! Model: the file is looked at by its path and by what it holds, so a symbolic link that is swapped, as Kubernetes does with
//! a mounted `ConfigMap`, is a change, and a touch is none. A change is taken when two looks saw the same, since somebody may
//! be writing into the file. The environment is that of the start.
//! Authority: a configuration that could start a relay. It is applied whole, as one [`Plan`], or not at all.
//! Failure: what can't be applied is said once, the relay goes on by what it has, and looks again: the cause may be another
//! file, such as a secret that is not there yet.

use std::sync::Arc;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{self, Duration, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use super::relay;
use crate::{
    config::{Config, Source},
    maintenance::{self, alerts},
    relay::Plan,
    schedule::Schedule,
};

/// Two looks make a change.
const LOOK: Duration = Duration::from_millis(500);

/// What is in use, and what was seen since.
pub(super) struct Reload {
    config: Config,
    plans: watch::Sender<Arc<Plan>>,
    history: watch::Sender<maintenance::Config>,
    alerts: watch::Sender<Option<alerts::Config>>,
    schedules: watch::Sender<Vec<Schedule>>,
    /// What was tried last.
    tried: Option<Text>,
    /// Why that could not be applied, which has been said.
    failure: Option<String>,
    /// Another one, seen once.
    draft: Option<Text>,
}

/// What the file holds, or why it can't be read.
type Text = Result<String, String>;

/// What differs between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
    /// Other tables that changed.
    tables: Vec<&'static str>,
}

// === impl Reload ===

impl Reload {
    /// Starts from what is in use.
    pub(super) fn new(
        config: Config,
        plans: watch::Sender<Arc<Plan>>,
        history: watch::Sender<maintenance::Config>,
        alerts: watch::Sender<Option<alerts::Config>>,
        schedules: watch::Sender<Vec<Schedule>>,
    ) -> Reload {
        Reload {
            config,
            plans,
            history,
            alerts,
            schedules,
            tried: None,
            failure: None,
            draft: None,
        }
    }

    /// Looks until the stop.
    pub(super) async fn run(
        mut self,
        source: &Source,
        mut hangup: Option<Signal>,
        stop: &CancellationToken,
    ) {
        let mut tick = time::interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                () = heard(&mut hangup) => true,
                _ = tick.tick() => false,
            };
            self.look(source, asked);
        }
    }

    fn look(&mut self, source: &Source, asked: bool) {
        let text = source.read().map_err(|problems| problems.to_string());
        let known = self.tried.as_ref() == Some(&text);
        if !asked {
            if known && self.failure.is_none() {
                self.draft = None;
                return;
            }
            if !known && self.draft.as_ref() != Some(&text) {
                self.draft = Some(text);
                return;
            }
        }
        self.draft = None;
        let applied = text.clone().and_then(|text| self.apply(source, &text));
        self.tried = Some(text);
        match applied {
            Ok(changes) => {
                self.failure = None;
                if changes != Changes::default() {
                    let Changes {
                        added,
                        removed,
                        changed,
                        tables,
                    } = changes;
                    tracing::info!(
                        endpoints.added = added.join(", "),
                        endpoints.removed = removed.join(", "),
                        endpoints.changed = changed.join(", "),
                        tables = tables.join(", "),
                        routes = self.config.routes.iter().count(),
                        digest = self.config.digest,
                        "configuration reloaded"
                    );
                } else if asked {
                    tracing::info!("SIGHUP: the configuration is the one in use");
                }
            }
            Err(failure) => {
                let said = known && self.failure.as_ref() == Some(&failure);
                if !said {
                    tracing::error!(
                        problems = failure,
                        "the configuration changed and can't be applied: the one before stays in use"
                    );
                } else if asked {
                    tracing::info!("SIGHUP: the configuration still can't be applied");
                }
                self.failure = Some(failure);
            }
        }
    }

    /// Applies all of it, or nothing and says why.
    fn apply(&mut self, source: &Source, text: &str) -> Result<Changes, String> {
        let config = source
            .parse(text)
            .map_err(|problems| problems.to_string())?;
        let fixed = fixed(&self.config, &config);
        if !fixed.is_empty() {
            return Err(format!(
                "nothing of it is applied, because a change of {} needs a restart",
                fixed.join(", ")
            ));
        }
        let changes = Changes::between(&self.config, &config);
        if changes != Changes::default() {
            let before = self.plans.borrow().clone();
            let plan =
                Plan::new(relay(&config), Some(&before)).map_err(|error| error.to_string())?;
            self.plans.send_replace(Arc::new(plan));
            self.history.send_if_modified(|history| {
                let modified = *history != config.maintenance;
                history.clone_from(&config.maintenance);
                modified
            });
            self.alerts.send_if_modified(|alerts| {
                let modified = *alerts != config.alerts;
                alerts.clone_from(&config.alerts);
                modified
            });
            self.schedules.send_if_modified(|schedules| {
                let modified = *schedules != config.schedules;
                schedules.clone_from(&config.schedules);
                modified
            });
        }
        self.config = config;
        Ok(changes)
    }
}

// === impl Changes ===

impl Changes {
    fn between(old: &Config, new: &Config) -> Changes {
        let mut changes = Changes::default();
        for endpoint in &new.endpoints {
            let before = old.endpoints.iter().find(|old| old.name == endpoint.name);
            match before {
                None => changes.added.push(endpoint.name.clone()),
                Some(before) if before != endpoint => changes.changed.push(endpoint.name.clone()),
                Some(_) => {}
            }
        }
        for endpoint in &old.endpoints {
            if !new.endpoints.iter().any(|new| new.name == endpoint.name) {
                changes.removed.push(endpoint.name.clone());
            }
        }
        let tables = [
            ("relay", old.relay != new.relay),
            ("history", old.maintenance != new.maintenance),
            ("alerts", old.alerts != new.alerts),
            ("routes", old.routes != new.routes),
            ("schedules", old.schedules != new.schedules),
        ];
        let changed = tables.into_iter().filter(|(_, changed)| *changed);
        changes.tables = changed.map(|(table, _)| table).collect();
        changes
    }
}

/// What differs and can't change while the relay runs: its connections and its registration are made of it.
fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let keys = [
        ("database.url", !new.database.leads_to(&old.database)),
        (
            "database.ca_file",
            old.database.ca_file != new.database.ca_file,
        ),
        (
            "database.altered_schema",
            old.database.lenient != new.database.lenient,
        ),
        ("database.guard", old.database.guard != new.database.guard),
        ("http, webhooks", old.admin != new.admin),
        ("tracing", old.tracing != new.tracing),
        ("relay.name", old.relay.name != new.relay.name),
        ("relay.lease", old.relay.lease != new.relay.lease),
    ];
    let changed = keys.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| key).collect()
}

/// Listens for SIGHUP from now on.
pub(super) fn listen() -> Option<Signal> {
    signal(SignalKind::hangup())
        .inspect_err(|error| tracing::error!(%error, "SIGHUP can't be listened for: only a change of the file reloads it"))
        .ok()
}

async fn heard(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}
