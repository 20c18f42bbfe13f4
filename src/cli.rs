//! The command line: each subcommand is a thin skin over the same methods that tests use.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a command answers goes to standard output, what went wrong to standard error"
)]

/// Answers a line on standard output. Whoever closed it has read enough.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::print(format_args!($($text)*)) };
}

pub mod demo;
mod find;
mod generate;
mod jobs;
mod life;
mod operate;
mod probe;
mod saga;
mod status;
mod tail;
mod text;
mod verbs;

use std::{
    fmt::Arguments,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};
use uuid::Uuid;

use crate::{app, config, config::Problems, delivery, relay, store};

/// Delivers rows of the table outbox.messages to HTTP endpoints: at least once, in order per key where a route wants it.
///
/// Exit codes: 0 success; 1 something failed; 2 the command line or the configuration is wrong; 3 the database can't be
/// used (not reachable, without an outbox, of another version, or a copy).
#[derive(Debug, Parser)]
#[command(name = "outbox-relay", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Deliver until SIGTERM or SIGINT, then drain and exit. SIGHUP reads the configuration again, as does a change of it.
    Run {
        /// The configuration.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// Exit with 0 as soon as nothing is due.
        #[arg(long)]
        until_empty: bool,
    },
    /// Bring the database to this binary's schema. Idempotent; runs while relays and applications run.
    Migrate {
        #[command(flatten)]
        database: Database,
        /// Print the SQL instead, for somebody with more rights to run.
        #[arg(long)]
        print: bool,
        /// Make a restored or cloned database an outbox of its own.
        #[arg(long)]
        accept_copy: bool,
        /// Set the word that a relay's configuration must know to deliver from this database.
        #[arg(long, value_name = "WORD")]
        guard: Option<String>,
        /// Let inserts wake a relay, though the server allows prepared transactions: one that inserts can't be prepared then. Later
        /// migrations keep to it.
        #[arg(long, conflicts_with = "no_doorbell")]
        doorbell: bool,
        /// Let no insert wake a relay: relays poll. Later migrations keep to it.
        #[arg(long)]
        no_doorbell: bool,
        /// As a JSON object.
        #[arg(long, conflicts_with = "print")]
        json: bool,
    },
    /// Validate configuration, connection and schema; print what each endpoint will do.
    Check {
        /// The configuration.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show relays, endpoints, backlog and dead letters.
    Status(status::Args),
    /// Stop deliveries to an endpoint, for all relays; its messages are kept.
    Pause {
        /// The endpoint's name.
        endpoint: String,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        by: verbs::By,
        #[command(flatten)]
        database: Database,
    },
    /// Let deliveries to an endpoint go on: end a pause, a wait that it asked for, or the pause of its breaker.
    Resume {
        /// The endpoint's name.
        endpoint: String,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        by: verbs::By,
        #[command(flatten)]
        database: Database,
    },
    /// Take a pending message back. One that is on its way can't be.
    Cancel {
        /// Its id.
        id: Uuid,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        by: verbs::By,
        #[command(flatten)]
        database: Database,
    },
    /// List messages: pending ones, dead letters, or what was delivered and is kept.
    List(find::List),
    /// Search the history: every attempt, every death, and what operators did.
    History(find::History),
    /// Follow the history: new lines as they are written, until Ctrl-C.
    Tail(tail::Tail),
    /// Show the whole life of a message.
    Show {
        /// Its id.
        id: Uuid,
        /// As one JSON object, its payload as it was written.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: Database,
    },
    /// Say why a message is not delivered.
    Why {
        /// Its id.
        id: Uuid,
        /// As a JSON array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: Database,
    },
    /// Send dead messages again, or delivered ones: by id, or all that a filter means.
    Replay(verbs::Replay),
    /// Remove dead letters for good, by id, or all that a filter means. A key that one of them holds opens.
    Discard(verbs::Many),
    /// Open an ordering key that a dead message holds; the dead letter stays.
    ReleaseKey(verbs::ReleaseKey),
    /// List replays and discards of many messages, or end one.
    Jobs {
        /// End this one where it is.
        #[arg(long, value_name = "JOB")]
        abort: Option<i64>,
        /// As a JSON array; with --abort, an object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: Database,
    },
    /// See and work on sagas: work of several steps.
    #[command(subcommand)]
    Saga(saga::Saga),
    /// Try whether a participant copes with what at-least-once and undo mean: requests that come again, at once, or in another order.
    Probe(probe::Probe),
    /// Print the script by which a shell completes this command line.
    Completions {
        /// Whose.
        shell: clap_complete::Shell,
    },
    /// Print the manual page; into a directory, a page of each subcommand too.
    Man {
        /// Write `outbox-relay.1`, `outbox-relay-run.1` and so on there.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Show the main job end to end on a private throwaway PostgreSQL, with faults, and judge the result.
    Demo(demo::Demo),
}

/// Which database: that of a configuration, or that of the environment variable `DATABASE_URL`.
#[derive(Debug, clap::Args)]
struct Database {
    /// Take the database from this configuration; without it, from the environment variable `DATABASE_URL`.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What a command came to, where it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Config(#[from] Problems),
    #[error("{0}")]
    Database(#[from] store::Error),
    #[error("{0}")]
    Relay(#[from] relay::Error),
    /// The command line can't be done.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Other(String),
}

/// Reads the command line, runs it, and says how it ended.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let verbose = matches!(cli.command, Command::Run { .. });
    log(verbose);
    delivery::install_tls();
    no_core_dump();
    all_descriptors();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("outbox-relay: can't start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("outbox-relay: {}", text::tame(&failure.to_string()));
            ExitCode::from(failure.code())
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run {
            config,
            until_empty,
        } => {
            let shutdown = shutdown();
            let source = config::Source::new(&config)?;
            let config = source.parse(&source.read()?)?;
            let run = app::run(config, Some(source), until_empty, shutdown);
            let summary = Box::pin(run).await?;
            if until_empty {
                say!(
                    "delivered={} retried={} dead={}",
                    summary.delivered,
                    summary.retried,
                    summary.dead
                );
            }
            Ok(())
        }
        Command::Migrate {
            print: true,
            doorbell,
            no_doorbell,
            ..
        } => {
            say!("{}", store::script(wanted(doorbell, no_doorbell)));
            Ok(())
        }
        Command::Migrate {
            database,
            print: false,
            accept_copy,
            guard,
            doorbell,
            no_doorbell,
            json,
        } => {
            let store = database.open()?;
            let doorbell = wanted(doorbell, no_doorbell);
            let migrate = operate::migrate(&store, guard.as_deref(), accept_copy, doorbell, json);
            or_a_signal(migrate).await
        }
        Command::Check { config, json } => {
            let config = config::load(&config)?;
            or_a_signal(operate::check(&config, json)).await
        }
        Command::Status(args) => status::status(args).await,
        Command::Pause {
            endpoint,
            json,
            by,
            database,
        } => verbs::pause(&database.open()?, &endpoint, &by, json).await,
        Command::Resume {
            endpoint,
            json,
            by,
            database,
        } => verbs::resume(&database.open()?, &endpoint, &by, json).await,
        Command::Cancel {
            id,
            json,
            by,
            database,
        } => verbs::cancel(&database.open()?, id, &by, json).await,
        Command::List(list) => find::list(list).await,
        Command::History(history) => find::history(history).await,
        Command::Tail(tail) => tail::tail(tail).await,
        Command::Show { id, json, database } => life::show(&database.open()?, id, json).await,
        Command::Why { id, json, database } => find::why(&database.open()?, id, json).await,
        Command::Replay(replay) => verbs::replay(replay).await,
        Command::Discard(discard) => verbs::discard(discard).await,
        Command::ReleaseKey(args) => verbs::release_key(args).await,
        Command::Jobs {
            abort,
            json,
            database,
        } => jobs::jobs(&database.open()?, abort, json).await,
        Command::Saga(saga) => saga::saga(saga).await,
        Command::Probe(probe) => Box::pin(probe::probe(probe)).await,
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { directory } => generate::man(directory.as_deref()),
        Command::Demo(demo) => demo::run(demo).await,
    }
}

/// Whether inserts are to wake a relay; `None` = as it is, or as the server's settings say.
fn wanted(doorbell: bool, no_doorbell: bool) -> Option<bool> {
    (doorbell || no_doorbell).then_some(doorbell)
}

/// A crash leaves no file with passwords and payloads behind. Where that can't be had, it is as it was.
fn no_core_dump() {
    let limit = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::debug!(%error, "core dumps stay as they were");
    }
}

/// As many file descriptors as may be had: each connection is one, and the customary 1024 are from another time.
fn all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!(%error, "the limit of file descriptors stays as it was");
    }
}

/// Text on a terminal, JSON elsewhere; `RUST_LOG` chooses. Commands that answer on standard output only warn.
fn log(verbose: bool) {
    let level = if verbose { "info" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let registry = tracing_subscriber::registry().with(filter);
    if std::io::stderr().is_terminal() {
        registry
            .with(fmt::layer().with_writer(std::io::stderr))
            .init();
    } else {
        registry
            .with(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_writer(std::io::stderr),
            )
            .init();
    }
}

fn print(text: Arguments<'_>) {
    written(format!("{}\n", text::tame(&text.to_string())).as_bytes());
}

/// Writes this to standard output as it is; whether somebody still reads there.
fn written(text: &[u8]) -> bool {
    // A pipe that is closed, a disk that is full: nothing that was done is undone by that.
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).is_ok()
}

/// Ends at the first SIGTERM or SIGINT after this call, not only after it is first waited for: one that nobody listens for kills a
/// process, and is lost on the first one of a container.
fn shutdown() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = signal(SignalKind::terminate());
    let interrupt = signal(SignalKind::interrupt());
    async {
        let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
            tracing::error!("signals can't be listened for: only SIGKILL will stop this process");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("SIGINT"),
        }
    }
}

/// For what runs as the first process of a container and waits for a database: the kernel ends any other process at these signals.
/// What was begun there is rolled back.
async fn or_a_signal(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        done = command => done,
        () = shutdown() => Err(Failure::Other("ended by a signal".into())),
    }
}

// === impl Database ===

impl Database {
    fn open(&self) -> Result<store::Store, Failure> {
        let config = config::database(self.config.as_deref())?;
        Ok(store::Store::new(&config)?)
    }
}

// === impl Failure ===

impl From<app::Error> for Failure {
    fn from(error: app::Error) -> Failure {
        match error {
            app::Error::Relay(error) => error.into(),
            app::Error::Admin(error) => Failure::Other(error.to_string()),
        }
    }
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Config(_)
            | Failure::Usage(_)
            | Failure::Database(store::Error::Config(_))
            | Failure::Relay(relay::Error::Database(store::Error::Config(_))) => 2,
            // What was given on the command line and only the database can read: a time, for example.
            Failure::Database(store::Error::Statement {
                state: Some(state), ..
            }) if state.starts_with("22") => 2,
            // What was asked for can't be had.
            Failure::Database(store::Error::Statement {
                state: Some(state), ..
            }) if ["55000", "P0002"].contains(&state.as_str()) => 1,
            Failure::Database(_) | Failure::Relay(relay::Error::Database(_)) => 3,
            Failure::Relay(relay::Error::Endpoint(_)) => 2,
            Failure::Relay(relay::Error::Random(_)) | Failure::Other(_) => 1,
        }
    }
}
