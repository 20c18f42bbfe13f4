//! The relay processes of the demo: this very binary, as an operator would run it.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{Failure, other};

pub(super) struct Relays {
    directory: PathBuf,
    config: PathBuf,
    url: String,
    running: Vec<Child>,
    started: usize,
}

impl Relays {
    pub(super) fn new(
        directory: &Path,
        url: &str,
        endpoint: &str,
        lease: Duration,
    ) -> Result<Relays, Failure> {
        let config = directory.join("relay.toml");
        let text = format!(
            "[relay]\nlease = \"{}s\"\npoll = \"50ms\"\n\n\
             [[endpoints]]\nname = \"warehouse\"\nurl = \"{endpoint}\"\nretry = {{ base = \"100ms\", cap = \"1s\", max_attempts = 100 }}\n\n\
             [[routes]]\ntopic = \"order.*\"\nto = [\"warehouse\"]\n",
            lease.as_secs()
        );
        std::fs::write(&config, text).map_err(other("write the configuration"))?;
        let directory = directory.to_owned();
        Ok(Relays {
            directory,
            config,
            url: url.to_owned(),
            running: Vec::new(),
            started: 0,
        })
    }

    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.started += 1;
        let name = format!("relay-{}", self.started);
        let log = File::create(self.directory.join(format!("{name}.log")))
            .map_err(other("write a log"))?;
        let binary = std::env::current_exe().map_err(other("find this binary"))?;
        let child = Command::new(binary)
            .arg("run")
            .arg("--config")
            .arg(&self.config)
            .env("DATABASE_URL", &self.url)
            .env("OUTBOX__RELAY__NAME", &name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(other("start a relay"))?;
        self.running.push(child);
        Ok(())
    }

    /// SIGKILL for the first one. Returns its process id.
    pub(super) async fn kill_first(&mut self) -> Result<u32, Failure> {
        let mut child = self.running.remove(0);
        let pid = child.id().unwrap_or(0);
        child.kill().await.map_err(other("kill a relay"))?;
        Ok(pid)
    }

    /// A relay that ended by itself is a failure.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        for child in &mut self.running {
            if let Some(status) = child.try_wait().map_err(other("look after a relay"))? {
                return Err(Failure::Other(format!("a relay ended by itself: {status}")));
            }
        }
        Ok(())
    }

    /// SIGTERM for all. Returns what was wrong with how they ended.
    pub(super) async fn stop(&mut self) -> Result<Option<String>, Failure> {
        for mut child in self.running.drain(..) {
            let pid = child
                .id()
                .and_then(|pid| i32::try_from(pid).ok())
                .and_then(Pid::from_raw);
            if let Some(pid) = pid {
                kill_process(pid, Signal::TERM).map_err(other("stop a relay"))?;
            }
            match timeout(Duration::from_secs(30), child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => {
                    return Ok(Some(format!("a relay ended with {status} after SIGTERM")));
                }
                Ok(Err(error)) => return Ok(Some(error.to_string())),
                Err(_) => return Ok(Some("a relay did not end within 30 s of SIGTERM".into())),
            }
        }
        Ok(None)
    }
}
