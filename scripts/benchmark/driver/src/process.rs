//! Processes that we started, and what the kernel says of them.
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::Failure;

/// A child that ends when this is dropped, or when we are killed.
pub(crate) struct Process {
    pub(crate) child: Child,
    name: String,
}

/// CPU and memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// Of children that have ended and were waited for.
    pub(crate) children: Duration,
}

// === impl Process ===

impl Process {
    /// Starts it with its output in `log`.
    ///
    /// `setpriv` makes the kernel end it when we die, however we die, and then becomes it, so that the pid is its own.
    pub(crate) fn start(name: &str, command: &Command, log: &Path) -> Result<Process, Failure> {
        let log = fs::File::create(log)?;
        let mut wrapped = wrap(command);
        wrapped
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = wrapped
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Process {
            child,
            name: name.to_owned(),
        })
    }

    /// Starts it with its standard output for us to read.
    pub(crate) fn start_piped(name: &str, command: &Command) -> Result<Process, Failure> {
        let child = wrap(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Process {
            child,
            name: name.to_owned(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended by itself?
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, waits a while, then makes it.
    pub(crate) fn stop(mut self) {
        self.end(Duration::from_secs(3));
    }

    /// Asks it to end, and does not wait.
    pub(crate) fn ask(&self) {
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }

    fn end(&mut self, patience: Duration) {
        if self.ended() {
            return;
        }
        self.ask();
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if self.ended() {
                return;
            }
            sleep(Duration::from_millis(5));
        }
        eprintln!(
            "bench: {} does not end when asked, so it is killed",
            self.name
        );
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Duration::from_secs(1));
    }
}

fn wrap(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL", "--"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// Runs a command to its end; its output is told where it fails.
pub(crate) fn run(name: &str, command: &mut Command) -> Result<(), Failure> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!(
        "{name}: {}: {}",
        output.status,
        String::from_utf8_lossy(&text)
    )
    .into())
}

/// Zero for a process that is no more.
pub(crate) fn usage(pid: u32) -> Usage {
    stat(pid).map_or_else(Usage::default, |(usage, _)| usage)
}

/// CPU of a process, of its children that live and of those that have ended.
pub(crate) fn family(parent: u32) -> Duration {
    let own = usage(parent);
    let mut total = own.cpu + own.children;
    for pid in children(parent) {
        total += usage(pid).cpu;
    }
    total
}

/// The children of a process that live.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    if let Ok(children) = fs::read_to_string(path) {
        return children.split_whitespace().flat_map(str::parse).collect();
    }
    // Not every kernel has that file.
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent))
        .collect()
}

/// Bytes in memory now, and at most so far.
pub(crate) fn memory(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) * 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

fn stat(pid: u32) -> Option<(Usage, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, up to its last parenthesis.
    let fields: Vec<&str> = text[text.rfind(')')? + 2..].split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let time = |ticks: u64| {
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    };
    Some((
        Usage {
            cpu: time(ticks(11)? + ticks(12)?),
            children: time(ticks(13)? + ticks(14)?),
        },
        fields.get(1)?.parse().ok()?,
    ))
}
