//! A PostgreSQL of one's own, thrown away at the end: the demo's database, and the one that tests may kill.
//!
//! **Model.** `initdb` and `postgres` run in a fresh directory of mode 0700 under the system's temporary one, which
//! holds data, log and socket. The server is our own child, not a daemon of `pg_ctl`: so its pid is known, its end is
//! seen, and a crash is one signal away. PostgreSQL refuses root, so root steps down to `postgres`, else `nobody`.
//! It trusts everybody on 127.0.0.1: nothing for a host that is shared with people one doesn't trust.
//!
//! **The end.** Dropping a [`Cluster`] stops the server and removes the directory. An owner that is killed drops
//! nothing, therefore a watchdog, a shell that reads from a pipe of ours, meets the end of that pipe when we are gone
//! and does the same. (Linux's parent-death signal would follow the *thread* that spawned the server, not us.)
//! Neither it nor the server is in our process group: Ctrl-C must not take the database away from those that
//! still want to finish their work.
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::Child,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::NoTls;

use self::home::Home;

mod binaries;
mod home;
mod standby;

/// For the server to accept connections, or to end when told so.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(20);

/// What a cluster is to be like.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `initdb`, `postgres` and `pg_ctl` are; `None` = look in the usual places.
    pub bin_dir: Option<PathBuf>,
    /// Write through to the disk. Without, commits cost less and survive `kill -9`, but not a power cut.
    pub durable: bool,
    /// More settings for the server, such as `("max_connections", "400")`.
    pub settings: Vec<(String, String)>,
}

/// How a server is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Roll back, disconnect, write a checkpoint (SIGINT).
    Fast,
    /// Leave everything as it is; the next start recovers (SIGQUIT).
    Immediate,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server is installed in any of the usual places.
    #[error(
        "no PostgreSQL server (initdb, postgres and pg_ctl in one directory) on the PATH or where packages put it: \
         install one (`apt-get install postgresql`, `dnf install postgresql-server`, `brew install postgresql@17`) \
         or say where it is"
    )]
    NotInstalled,
    /// The directory that was asked for has no server in it.
    #[error("{0} doesn't hold initdb, postgres and pg_ctl")]
    NotThere(PathBuf),
    /// PostgreSQL refuses root, and there is nobody to step down to.
    #[error(
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as"
    )]
    NoUser,
    /// A unix socket's path has a limit.
    #[error("{0} is too long a path for a unix socket: point TMPDIR to a shorter one")]
    LongPath(PathBuf),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was to be done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// `initdb` failed.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended before it accepted a connection.
    #[error("PostgreSQL ended while it started ({status}); the end of its log:\n{log}")]
    Ended {
        /// What it ended with.
        status: ExitStatus,
        /// The last lines that it wrote.
        log: String,
    },
    /// The server accepts no connection, or doesn't end.
    #[error("PostgreSQL did not {what} within {} s; the end of its log:\n{log}", PATIENCE.as_secs())]
    Late {
        /// What it was to do.
        what: &'static str,
        /// The last lines that it wrote.
        log: String,
    },
}

/// A running (or stopped) server and its directory; both go when this is dropped.
///
/// Its fields are dropped from top to bottom: the watchdog stays until there is nothing left for it to do.
#[derive(Debug)]
pub struct Cluster {
    server: Option<Child>,
    port: u16,
    options: Options,
    home: Home,
    _watchdog: Child,
}

// === impl Cluster ===

impl Cluster {
    /// Makes a cluster, starts it and waits until it accepts connections: some 1.5 s.
    pub async fn start(options: Options) -> Result<Cluster, Error> {
        let bin = match &options.bin_dir {
            Some(dir) => binaries::server_in(dir).ok_or_else(|| Error::NotThere(dir.clone()))?,
            None => binaries::find().ok_or(Error::NotInstalled)?,
        };
        let home = Home::new(bin).await?;
        let mut cluster = Cluster {
            server: None,
            port: free_port()?,
            _watchdog: home.watchdog()?,
            options,
            home,
        };
        cluster.home.initdb().await?;
        // Somebody else may take the port in the moment between our look and the server's start.
        for _ in 0..5 {
            match cluster.launch().await {
                Err(Error::Ended { log, .. }) if log.contains("Address already in use") => {
                    cluster.port = free_port()?;
                }
                started => return started.map(|()| cluster),
            }
        }
        cluster.launch().await.map(|()| cluster)
    }

    /// The superuser's URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the unix socket: libpq's `host`.
    pub fn socket_dir(&self) -> &Path {
        &self.home.dir
    }

    /// The postmaster's process id; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().and_then(Child::id)
    }

    /// The server's log, all starts in one file.
    pub fn log_path(&self) -> PathBuf {
        self.home.dir.join("log")
    }

    /// Stops the server and waits for its end; the data stays for a [`Cluster::restart`].
    pub async fn stop(&mut self, how: Stop) -> Result<(), Error> {
        let log = self.log_len();
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        how.tell(server);
        match timeout(PATIENCE, server.wait()).await {
            Ok(ended) => ended.map_err(system("wait for PostgreSQL"))?,
            Err(_) => {
                let (what, log) = ("end", self.log_since(log));
                return Err(Error::Late { what, log });
            }
        };
        self.server = None;
        Ok(())
    }

    /// Kills the postmaster with SIGKILL, as the kernel does when memory runs out.
    ///
    /// Its backends are not waited for: they see that it is gone and end by themselves, busy ones a little later.
    pub async fn kill_hard(&mut self) -> Result<(), Error> {
        if let Some(mut server) = self.server.take() {
            server.kill().await.map_err(system("kill PostgreSQL"))?;
        }
        Ok(())
    }

    /// Starts the server again on the same data and port, after stopping it if it runs.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop(Stop::Fast).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.launch().await {
                // Backends of a killed postmaster hold on to its memory until they have noticed, and PostgreSQL
                // refuses to start beside them. They are few and quick, but not instantaneous.
                Err(Error::Ended { log, .. })
                    if log.contains("is still in use") && Instant::now() < deadline =>
                {
                    sleep(LOOK).await;
                }
                started => return started,
            }
        }
    }

    async fn launch(&mut self) -> Result<(), Error> {
        let before = self.log_len();
        let server = self.spawn().map_err(system("start PostgreSQL"))?;
        let server = self.server.insert(server);
        // By its socket, which nobody else can have: on the port there may be another server, if ours came too late.
        let mut socket = tokio_postgres::Config::new();
        socket.host_path(&self.home.dir).port(self.port);
        socket.user("postgres").dbname("postgres");
        let accepts = async {
            loop {
                if let Some(status) = server.try_wait()? {
                    return Ok(Some(status));
                }
                if socket.connect(NoTls).await.is_ok() {
                    return Ok(None);
                }
                sleep(LOOK).await;
            }
        };
        let failure = match timeout(PATIENCE, accepts).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(status))) => {
                let log = self.log_since(before);
                Error::Ended { status, log }
            }
            Ok(Err(source)) => system("wait for PostgreSQL")(source),
            Err(_) => {
                let (what, log) = ("accept connections", self.log_since(before));
                Error::Late { what, log }
            }
        };
        // Ends it, if it hasn't ended.
        self.server = None;
        Err(failure)
    }

    fn spawn(&self) -> io::Result<Child> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let mut command = self.home.command("postgres");
        command
            .arg("-D")
            .arg(self.home.data())
            .arg("-k")
            .arg(&self.home.dir);
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("port", &self.port.to_string());
        if !self.options.durable {
            set("fsync", "off");
        }
        for (name, value) in &self.options.settings {
            set(name, value);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
    }

    fn log_len(&self) -> u64 {
        fs::metadata(self.log_path()).map_or(0, |log| log.len())
    }

    /// The last lines of the log, as far as they were written after `start`.
    fn log_since(&self, start: u64) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = log
            .get(usize::try_from(start).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let text = String::from_utf8_lossy(log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Cluster {
    /// Blocks its thread until the server is gone: usually some 20 ms, at most 5 s, then it is killed.
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            Stop::Immediate.tell(server);
            let mut looks = 250;
            while looks > 0 && matches!(server.try_wait(), Ok(None)) {
                looks -= 1;
                thread::sleep(LOOK);
            }
        }
    }
}

// === impl Stop ===

impl Stop {
    /// A server that has ended already needs no telling, so that failure means nothing.
    fn tell(self, server: &Child) {
        let signal = match self {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        let pid = server.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
    }
}

fn free_port() -> Result<u16, Error> {
    super::listen()
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(system("find a free port"))
}

fn system(what: &str) -> impl FnOnce(io::Error) -> Error {
    let what = format!("cannot {what}");
    move |source| Error::System { what, source }
}
