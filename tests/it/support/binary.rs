//! The built binary, as an operator runs it.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::pooled;

/// A directory of a test's own, removed with everything in it.
pub(crate) struct Directory(PathBuf);

/// A process that runs; it is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("outbox-relay-it-{}-{number}", process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A configuration as the demo's: one endpoint, all topics, `more` at the top.
    pub(crate) fn config(&self, url: &str, more: &str) -> PathBuf {
        let text = format!(
            "[relay]\nlease = \"2s\"\npoll = \"20ms\"\n{more}\n\
             [[endpoints]]\nname = \"shop\"\nurl = \"{url}\"\nconcurrency = 4\nretry = {{ base = \"50ms\", cap = \"200ms\", max_attempts = 100 }}\n\n\
             [[routes]]\ntopic = \"**\"\nto = [\"shop\"]\n"
        );
        self.write("relay.toml", &text)
    }

    /// Starts `outbox-relay run` under this name.
    pub(crate) fn run(&self, config: &Path, database: &str, name: &str) -> Process {
        self.start(command(database), config, name)
    }

    /// The same; it ends itself at a point of its loop, if one is named. See `relay/crash.rs`.
    pub(crate) fn run_until_crash(
        &self,
        config: &Path,
        database: &str,
        name: &str,
        crash: Option<&str>,
    ) -> Process {
        let mut command = command(database);
        command.envs(crash.map(|point| ("OUTBOX_RELAY_CRASH", point)));
        self.start(command, config, name)
    }

    /// The same, with a variable of the environment.
    pub(crate) fn run_with(
        &self,
        config: &Path,
        database: &str,
        name: &str,
        (variable, value): (&str, &str),
    ) -> Process {
        let mut command = command(database);
        command.env(variable, value);
        self.start(command, config, name)
    }

    /// The same, with so many file descriptors.
    pub(crate) fn run_with_descriptors(
        &self,
        config: &Path,
        database: &str,
        name: &str,
        descriptors: u32,
    ) -> Process {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nofile={descriptors}:{descriptors}"))
            .arg(env!("CARGO_BIN_EXE_outbox-relay"));
        self.start(prepared(command, database), config, name)
    }

    /// The same as nobody, without any privilege, where nothing can be written.
    pub(crate) fn run_confined(&self, config: &Path, database: &str, name: &str) -> Process {
        let program = self.0.join("outbox-relay");
        fs::copy(env!("CARGO_BIN_EXE_outbox-relay"), &program).unwrap();
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "sh", "-c"])
            .arg(
                "mount -o remount,bind,ro / && mount -t tmpfs -o ro none /dev/shm && \
                 exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"",
            )
            .arg(program);
        self.start(prepared(command, database), config, name)
    }

    /// Starts any other command.
    pub(crate) fn command(&self, database: &str, arguments: &[&str], name: &str) -> Process {
        let mut command = command(database);
        command.args(arguments);
        self.spawn(command, name)
    }

    fn start(&self, mut command: Command, config: &Path, name: &str) -> Process {
        command
            .arg("run")
            .arg("--config")
            .arg(config)
            .env("OUTBOX__RELAY__NAME", name);
        self.spawn(command, name)
    }

    /// Starts a command as it is, logging under this name.
    pub(crate) fn spawn(&self, mut command: Command, name: &str) -> Process {
        let log = self.0.join(format!("{name}.log"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Process { child, log }
    }
}

impl Directory {
    /// All logs, one after the other.
    pub(crate) fn logs(&self) -> String {
        self.lines_with("").join("\n")
    }

    /// The lines of all logs that hold this word.
    pub(crate) fn lines_with(&self, word: &str) -> Vec<String> {
        let files = fs::read_dir(&self.0).unwrap();
        let logs = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        logs.flat_map(|log| {
            log.lines()
                .filter(|line| line.contains(word))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The same for one that may have ended.
    pub(crate) fn try_signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
    }

    /// Its first child, once it has one.
    pub(crate) fn child(&self) -> Option<Pid> {
        let parent = format!("PPid:\t{}\n", self.child.id().unwrap());
        let processes = fs::read_dir("/proc").unwrap();
        processes.flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            status.contains(&parent).then(|| Pid::from_raw(pid))?
        })
    }

    /// What it ended with; panics if it doesn't end in time.
    pub(crate) async fn end(&mut self, deadline: Duration) -> ExitStatus {
        match timeout(deadline, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("it runs on after {deadline:?}: {}", self.log()),
        }
    }

    /// What the kernel lets it have.
    pub(crate) fn limits(&self) -> String {
        fs::read_to_string(format!("/proc/{}/limits", self.child.id().unwrap())).unwrap()
    }

    /// What the kernel says of it.
    pub(crate) fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap()
    }

    /// The most memory that it ever had, in bytes, but for what is read from its file: of that a container's limit takes back
    /// what it needs, and a debug build has several times as much as a release.
    pub(crate) fn peak(&self) -> u64 {
        let status = self.status();
        let bytes = |what| {
            let line = status.lines().find_map(|line| line.strip_prefix(what));
            let kilobytes = line.unwrap().split_whitespace().next().unwrap();
            kilobytes.parse::<u64>().unwrap() * 1024
        };
        bytes("VmHWM:") - bytes("RssFile:")
    }

    /// How much of a processor's time it has used so far, its system calls included.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id().unwrap())).unwrap();
        // The second field, in brackets, is the program's name, which may hold anything.
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
        // USER_HZ, which Linux has fixed.
        Duration::from_millis(ticks * 10)
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

/// The binary with this database, and nothing else of the environment that it would read.
fn command(database: &str) -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_outbox-relay")), database)
}

fn prepared(mut command: Command, database: &str) -> Command {
    command
        .env_remove("RUST_LOG")
        .env("DATABASE_URL", pooled(database));
    command
}

/// Runs a command to its end.
pub(crate) async fn outbox_relay(database: &str, arguments: &[&str]) -> Output {
    let run = command(database)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(60), run).await;
    output.expect("the command ends").unwrap()
}
