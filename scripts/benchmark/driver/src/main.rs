//! What `scripts/bench` runs: it starts the contenders, watches them from outside, and reports.
//!
//! The sink and the bare loop are processes of their own, from this same binary, so that each one's CPU is its own. A
//! contender's CPU is read from the kernel, the database's from all of its processes; rates are the sink's counts by the
//! sink's clock. Nobody is asked how fast it was.
mod bare;
mod contender;
mod cost;
mod database;
mod drain;
mod footprint;
mod lab;
mod latency;
mod limits;
mod many;
mod pgq;
mod process;
mod report;
mod scale;
mod sink;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// An error of any kind, with what was to be done.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure and report.
    Run(Options),
    /// The receiver: answers 200, counts, and remembers when each message came first.
    Sink,
    /// Post COUNT messages, so many at once, and do nothing else.
    Bare {
        url: String,
        count: u64,
        concurrency: usize,
    },
}

/// What is measured, and with what.
#[derive(clap::Args)]
struct Options {
    /// Fewer messages, smaller tables: the whole in less than three minutes, and what is not finished by then is left out.
    #[arg(long)]
    quick: bool,
    /// Rounds in which the contenders alternate; without it 5, of a quick run's lesser sections 3.
    #[arg(long)]
    rounds: Option<usize>,
    /// The relay's binary.
    #[arg(long)]
    relay: PathBuf,
    /// Where the peers' binaries are.
    #[arg(long)]
    peers: PathBuf,
    /// The directory of the npm peers, if they could be installed.
    #[arg(long)]
    node: Option<PathBuf>,
    /// The directory of the server's programs.
    #[arg(long)]
    postgres: PathBuf,
    /// Only these sections.
    sections: Vec<report::Section>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run(options) => lab::run(&options),
        Command::Sink => sink::run(),
        Command::Bare {
            url,
            count,
            concurrency,
        } => bare::run(&url, count, concurrency),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
