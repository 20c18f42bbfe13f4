//! Wiring: one configuration, one shutdown, everything that runs in between.

mod reload;

use std::sync::Arc;

use rand::{
    SeedableRng,
    rngs::{StdRng, SysRng},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::reload::Reload;
use crate::{
    config::{Config, Source},
    maintenance,
    relay::{self, Error, Plan, Relay, Summary},
    store::{self, Store},
};

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
    let store = Store::single(&config.database, store::PATIENCE)?;
    let mut rng =
        StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))?;
    let stop = CancellationToken::new();
    let database = config.database.clone();
    let (plans, plan) = watch::channel(Arc::new(Plan::new(relay(&config), None)?));
    let (history, mut histories) = watch::channel(config.maintenance.clone());
    let reload = async {
        // Its senders stay until the end, whether anything is ever sent or not.
        let reload = Reload::new(config, plans, history);
        match source {
            Some(source) => reload.run(&source, hangup, &stop).await,
            None => stop.cancelled().await,
        }
    };
    let deliver = async {
        let end = relay::serve(&database, until_empty, plan, shutdown).await;
        stop.cancel();
        end
    };
    let maintain = maintenance::run(&store, &mut histories, &stop, &mut rng);
    let (end, (), ()) = tokio::join!(deliver, maintain, reload);
    end
}

/// What the loop needs of a configuration.
fn relay(config: &Config) -> Relay {
    Relay {
        archive: !config.maintenance.delivered.is_zero(),
        config: config.relay.clone(),
        database: config.database.clone(),
        digest: config.digest.clone(),
        endpoints: config.endpoints.clone(),
        routes: config.routes.clone(),
        until_empty: false,
    }
}
