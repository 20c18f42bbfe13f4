//! Wiring: one configuration, one shutdown, everything that runs in between.

use rand::{
    SeedableRng,
    rngs::{StdRng, SysRng},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    maintenance,
    relay::{self, Error, Relay, Summary},
    store::Store,
};

/// Delivers until `shutdown` ends, and drains; with `until_empty`, until nothing is due.
pub async fn run(
    config: Config,
    until_empty: bool,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Error> {
    let store = Store::new(&config.database)?;
    let mut rng =
        StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))?;
    let stop = CancellationToken::new();
    let relay = Relay {
        archive: !config.maintenance.delivered.is_zero(),
        config: config.relay,
        database: config.database,
        digest: config.digest,
        endpoints: config.endpoints,
        routes: config.routes,
        until_empty,
    };
    let deliver = async {
        let end = relay::run(relay, shutdown).await;
        stop.cancel();
        end
    };
    let maintain = maintenance::run(&store, &config.maintenance, &stop, &mut rng);
    let (end, ()) = tokio::join!(deliver, maintain);
    end
}
