//! What all sections share: the database, the sink, a directory for logs, and the order in which things are measured.
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Failure, Options, contender, cost,
    database::{Database, Server},
    drain, footprint, latency, limits, many, pgq, process,
    process::Process,
    report::{Report, Section},
    scale,
};

pub(crate) struct Lab<'a> {
    pub(crate) options: &'a Options,
    pub(crate) server: Server,
    pub(crate) sink: Sink,
    pub(crate) report: Report,
    pub(crate) dir: Scratch,
}

/// A directory that goes with its owner.
pub(crate) struct Scratch(PathBuf);

/// The sink's process, and a connection to ask it by.
pub(crate) struct Sink {
    _process: Process,
    port: u16,
    stream: TcpStream,
}

/// What the sink has seen since it was reset. Times are in seconds by its clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) unique: f64,
    pub(crate) duplicates: f64,
    pub(crate) last: f64,
    pub(crate) in_flight: f64,
    pub(crate) now: f64,
}

/// A quick run ends then, whatever is left.
const QUICK: Duration = Duration::from_secs(150);

/// One thread: the kernel ends our children when the thread that started them ends.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let dir = std::env::temp_dir().join(format!("outbox-relay-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let mut lab = Lab {
        options,
        server: Server::start(&options.postgres).await?,
        sink: Sink::start().await?,
        report: Report::default(),
        dir: Scratch(dir),
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    lab.report.note(&format!(
        "load average {load} on {cores} cores at the start: what others do here is in the figures"
    ));
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = sections(&mut lab) => {}
        // What was started ends with what holds it.
        _ = tokio::signal::ctrl_c() => return Err("interrupted".into()),
        _ = terminate.recv() => return Err("terminated".into()),
    }
    lab.report.close();
    Ok(())
}

async fn sections(lab: &mut Lab<'_>) {
    use Section::*;
    let begun = Instant::now();
    let sections: &[Section] = match &lab.options.sections[..] {
        [] => &[
            Drain, Cost, Latency, Slow, Footprint, Isolation, Relays, Idle, Doorbell, Large,
            Pinned, Due, Memory, Migrate,
        ],
        some => &some.to_vec(),
    };
    let bounded = lab.options.quick && lab.options.sections.is_empty();
    for section in sections {
        let started = Instant::now();
        let left = match bounded {
            true => QUICK.saturating_sub(begun.elapsed()),
            // A whole run of a section that hangs would be of no use either.
            false => Duration::from_secs(3600),
        };
        if left.is_zero() {
            lab.report.note(&format!(
                "{section:?} was left out: the time of a quick run is over"
            ));
            continue;
        }
        let outcome = tokio::time::timeout(left, one(lab, *section)).await;
        // What fails leaves its figures null and the others alone.
        if let Err(failure) = outcome.unwrap_or_else(|_| Err("its time was over".into())) {
            lab.report
                .note(&format!("{section:?} was not finished: {failure}"));
        }
        eprintln!(
            "bench: {section:?} took {:.0} s",
            started.elapsed().as_secs_f64()
        );
    }
}

async fn one(lab: &mut Lab<'_>, section: Section) -> Result<(), Failure> {
    use Section::*;
    match section {
        Drain => drain::drain(lab).await,
        Cost => match cost::cost(lab).await {
            Ok(()) => pgq::pgq(lab).await,
            failed => failed,
        },
        Latency => latency::latency(lab).await,
        Slow => drain::slow(lab).await,
        Footprint => footprint::footprint(lab).await,
        Due => footprint::due(lab).await,
        Memory => limits::memory(lab).await,
        Migrate => limits::migrate(lab).await,
        Idle => footprint::idle(lab).await,
        Isolation => latency::isolation(lab).await,
        Relays => many::relays(lab).await,
        Doorbell => many::doorbell(lab).await,
        Large => scale::large(lab).await,
        Pinned => scale::pinned(lab).await,
    }
}

// === impl Lab ===

impl Lab<'_> {
    /// One of two numbers, by how much time there is.
    pub(crate) fn scale<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// How often the contenders of a section take turns.
    pub(crate) fn rounds(&self) -> usize {
        self.options.rounds.unwrap_or(self.scale(3, 5))
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    pub(crate) fn relay_command(&self) -> Command {
        let mut command = Command::new(&self.options.relay);
        // A setting of whoever runs this must not change what is measured.
        command.env_remove("DATABASE_URL").env_remove("RUST_LOG");
        command
    }

    /// Makes an outbox of a database, new or copied.
    pub(crate) fn migrate(&self, database: &Database, accept: bool) -> Result<(), Failure> {
        let mut command = self.relay_command();
        command.env("DATABASE_URL", &database.url).arg("migrate");
        if accept {
            command.arg("--accept-copy");
        }
        process::run("outbox-relay migrate", &mut command)
    }

    /// An empty outbox.
    pub(crate) async fn outbox(&self, name: &str) -> Result<Database, Failure> {
        let database = self.server.create(name).await?;
        self.migrate(&database, false)?;
        Ok(database)
    }

    /// A template of an outbox with so many messages, numbered from 0. `keys` of 0: without ordering keys.
    pub(crate) async fn template(
        &self,
        name: &str,
        messages: u64,
        keys: u64,
    ) -> Result<(), Failure> {
        let database = self.outbox(name).await?;
        contender::insert(&database, "bench.order", 0..messages, keys).await?;
        database.run("VACUUM (ANALYZE) outbox.messages").await
    }

    /// A copy of such a template.
    pub(crate) async fn copy(&self, template: &str, name: &str) -> Result<Database, Failure> {
        let database = self.server.copy(template, name).await?;
        self.migrate(&database, true)?;
        Ok(database)
    }

    /// Starts a relay of a database with these endpoints and routes.
    pub(crate) fn relay(
        &self,
        database: &Database,
        name: &str,
        rest: &str,
    ) -> Result<Process, Failure> {
        self.relay_with(database, name, rest, &[])
    }

    /// The same, with these variables.
    pub(crate) fn relay_with(
        &self,
        database: &Database,
        name: &str,
        rest: &str,
        variables: &[(&str, &str)],
    ) -> Result<Process, Failure> {
        let file = self.dir.path().join(format!("{name}.toml"));
        let url = &database.url;
        fs::write(
            &file,
            format!("[database]\nurl = \"{url}\"\n[relay]\nname = \"{name}\"\n{rest}"),
        )?;
        let mut command = self.relay_command();
        command.arg("run").arg("--config").arg(&file);
        command.envs(variables.iter().copied());
        Process::start(name, &command, &self.log(name))
    }

    /// The same with one endpoint, at this path of the sink, and with the defaults.
    pub(crate) fn simple_relay(
        &self,
        database: &Database,
        name: &str,
        path: &str,
    ) -> Result<Process, Failure> {
        self.relay(database, name, &self.endpoint("sink", path, "bench.**"))
    }

    /// One endpoint with its route.
    pub(crate) fn endpoint(&self, name: &str, path: &str, topic: &str) -> String {
        let url = self.sink.url(path);
        format!(
            "[[endpoints]]\nname = \"{name}\"\nurl = \"{url}\"\n[[routes]]\ntopic = \"{topic}\"\nto = [\"{name}\"]\n"
        )
    }

    /// Waits until the sink has seen so many messages.
    pub(crate) async fn until_seen(
        &mut self,
        unique: f64,
        patience: Duration,
    ) -> Result<Seen, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.sink.seen().await?;
            if seen.unique >= unique {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "{} messages instead of {unique} after {patience:?}",
                    seen.unique
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

// === impl Scratch ===

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

// === impl Sink ===

impl Sink {
    async fn start() -> Result<Sink, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("sink");
        let mut process = Process::start_piped("the sink", &command)?;
        let output = process.child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse()?;
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Sink {
            _process: process,
            port,
            stream,
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Forgets everything, and makes room for messages with numbers below `capacity`.
    pub(crate) async fn reset(&mut self, capacity: u64) -> Result<(), Failure> {
        self.ask(&format!("reset/{capacity}")).await.map(drop)
    }

    pub(crate) async fn seen(&mut self) -> Result<Seen, Failure> {
        let answer = String::from_utf8(self.ask("stats").await?)?;
        let numbers: Vec<f64> = answer.split(' ').flat_map(str::parse).collect();
        let [_, unique, duplicates, last, in_flight, now] = numbers[..] else {
            return Err("the sink answers something else".into());
        };
        Ok(Seen {
            unique,
            duplicates,
            last: last / 1e9,
            in_flight,
            now: now / 1e9,
        })
    }

    /// When each number came first, in nanoseconds since 1970; 0 = not yet.
    pub(crate) async fn arrivals(&mut self) -> Result<Vec<u64>, Failure> {
        let bytes = self.ask("arrivals").await?;
        let (numbers, _) = bytes.as_chunks::<8>();
        Ok(numbers
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect())
    }

    async fn ask(&mut self, what: &str) -> Result<Vec<u8>, Failure> {
        let request = format!("GET /-/{what} HTTP/1.1\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        let head = String::from_utf8(head)?.to_ascii_lowercase();
        let length = head.split("content-length:").nth(1).ok_or("no length")?;
        let length = length.lines().next().unwrap_or_default().trim().parse()?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }
}
