//! A second server that follows the first one, for a failover.
use std::fs;

use super::{Cluster, Error, Stop, free_port, system};

impl Cluster {
    /// Makes a hot standby of this server and starts it. This one is stopped meanwhile, for what is copied are its files: so it
    /// needs no program but those of every installation.
    pub async fn standby(&mut self) -> Result<Cluster, Error> {
        self.stop(Stop::Fast).await?;
        let home = self.home.copy().await?;
        let mut options = self.options.clone();
        let primary = format!("host=127.0.0.1 port={} user=postgres", self.port);
        options.settings.push(("primary_conninfo".into(), primary));
        fs::write(home.data().join("standby.signal"), "")
            .map_err(system("write standby.signal"))?;
        let mut standby = Cluster {
            server: None,
            port: free_port()?,
            _watchdog: home.watchdog()?,
            options,
            home,
        };
        self.launch().await?;
        standby.launch().await?;
        Ok(standby)
    }
}
