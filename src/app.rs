//! Wiring: one configuration, one shutdown, everything that runs in between.

mod reload;

use std::sync::Arc;

use rand::{
    SeedableRng,
    rngs::{StdRng, SysRng},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::reload::Reload;
use crate::{
    admin::{self, Door},
    config::{Config, Source},
    maintenance::{self, Trail, alerts, spans},
    metrics::Metrics,
    relay::{self, Export, Plan, Relay, Signals, Summary, Tracer, Vitals},
    store::{self, Records, Store},
};

/// Why a relay does not run, or ran no further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can't deliver.
    #[error(transparent)]
    Relay(#[from] relay::Error),
    /// It can't be asked.
    #[error(transparent)]
    Admin(#[from] admin::Error),
}

/// Delivers until `shutdown` ends, and drains; with `until_empty`, until nothing is due. With a `source`, the one that the
/// configuration was read from, what changes there is taken over.
pub async fn run(
    config: Config,
    source: Option<Source>,
    until_empty: bool,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Error> {
    // First of all: until somebody listens for SIGHUP, it kills.
    let hangup = source.as_ref().and_then(|_| reload::listen());
    let store = Store::single(&config.database, store::PATIENCE).map_err(relay::Error::from)?;
    let mut rng = StdRng::try_from_rng(&mut SysRng)
        .map_err(|error| relay::Error::Random(error.to_string()))?;
    let vitals = Vitals::new();
    let metrics = Metrics::new();
    let trail = Trail::default();
    let door = Door::open(&config.admin, &config.database, &vitals, &metrics, &trail).await?;
    let stop = CancellationToken::new();
    let (queue, queued) = mpsc::channel(spans::QUEUE);
    let collector = config.tracing.clone();
    let registered = vitals.clone();
    let signals = Signals {
        vitals,
        metrics: metrics.clone(),
        tracer: Tracer::new(
            StdRng::from_rng(&mut rng),
            collector.as_ref().map(|collector| Export {
                spans: queue,
                sample: collector.sample,
            }),
        ),
    };
    let name = config.relay.name.clone();
    let export = async {
        let Some(collector) = &collector else { return };
        // Without the feature no configuration has one.
        #[cfg(feature = "otlp")]
        spans::export(collector, &name, queued, &metrics, &stop).await;
        #[cfg(not(feature = "otlp"))]
        drop((collector, name, queued));
    };
    let admin = config.admin.clone();
    let looks = Store::single(&config.database, store::PATIENCE).map_err(relay::Error::from)?;
    let mut jitter = StdRng::from_rng(&mut rng);
    let sample = async {
        // Else nobody can scrape.
        if admin.listen.is_some() {
            let every = admin.sample_every;
            maintenance::sample(&looks, &metrics, &trail, every, &stop, &mut jitter).await;
        }
    };
    let database = config.database.clone();
    let (plans, plan) = watch::channel(Arc::new(
        Plan::new(relay(&config), None).map_err(relay::Error::from)?,
    ));
    let (history, mut histories) = watch::channel(config.maintenance.clone());
    let (schedule, mut schedules) = watch::channel(config.schedules.clone());
    let (alert, mut alerting) = watch::channel(config.alerts.clone());
    let mut chance = StdRng::from_rng(&mut rng);
    let alert_store =
        Store::single(&config.database, store::PATIENCE).map_err(relay::Error::from)?;
    let reload = async {
        // Its senders stay until the end, whether anything is ever sent or not.
        let reload = Reload::new(config, plans, history, alert, schedule);
        match source {
            Some(source) => reload.run(&source, hangup, &stop).await,
            None => stop.cancelled().await,
        }
    };
    let deliver = async {
        let end = relay::serve(&database, until_empty, plan, &signals, shutdown).await;
        stop.cancel();
        end
    };
    let maintain = maintenance::run(&store, &mut histories, &stop, &mut rng);
    let alert = alerts::watch(&alert_store, &mut alerting, &metrics, &stop, &mut chance);
    let clock = Store::single(&database, store::PATIENCE).map_err(relay::Error::from)?;
    let fire = maintenance::schedules::run(
        &clock,
        &mut schedules,
        || registered.started(),
        &metrics,
        &stop,
    );
    let admit = async {
        match door {
            Some(door) => door.run(&stop).await,
            None => stop.cancelled().await,
        }
    };
    let export = Box::pin(export);
    let (end, (), (), (), (), (), (), ()) = tokio::join!(
        deliver, maintain, reload, admit, sample, alert, fire, export
    );
    Ok(end?)
}

/// What the loop needs of a configuration.
fn relay(config: &Config) -> Relay {
    Relay {
        sagas: config.sagas.clone(),
        records: Records {
            payloads: !config.maintenance.keep.delivered.is_zero(),
            history: config.maintenance.record,
        },
        config: config.relay.clone(),
        database: config.database.clone(),
        digest: config.digest.clone(),
        endpoints: config.endpoints.clone(),
        routes: config.routes.clone(),
        until_empty: false,
    }
}
