//! The history as it is written.

use std::{collections::HashMap, time::Duration};

use tokio::time::{self, Instant, MissedTickBehavior};

use super::{
    Database, Failure,
    find::{self, Lines},
    shutdown, text, written,
};
use crate::{
    config,
    store::{self, Line, Search, Store},
};

/// How often the database is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Lines of one answer.
const PAGE: i32 = 1000;

/// Lines of all answers of one look: who reads along can't read more, and the database is not to pay for it.
const MOST: usize = 5000;

/// What was shown is known for so many looks after it was last seen. The window's beginning moves with the database's clock and with
/// how long a question is under way, so it may go back a little.
const LOOKS: u64 = 60;

/// The first look, of which nothing is shown, goes back by so much more: it may take longer than later ones, whose windows would begin
/// before it.
const MORE: Duration = Duration::from_secs(30);

/// A line is written when an attempt is settled, under the time at which it was started: lines come out of order, so each
/// look is at the whole window, and what was shown is left out. What that can't show: an attempt that took longer than
/// `--window`; and of more than 5000 lines in the window, those before the newest 5000 that were settled late.
#[derive(Debug, clap::Args)]
pub(super) struct Tail {
    #[command(flatten)]
    lines: Lines,
    /// Begin with the newest so many.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(i32).range(0..=10_000))]
    last: i32,
    /// Look for lines that were begun within this time: an attempt that takes longer is not shown.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = config::duration)]
    window: Duration,
    /// As one JSON object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

/// What is looked at, and what was shown of it.
struct Follower {
    store: Store,
    search: Search,
    json: bool,
    window: Duration,
    /// When the last look that was answered began.
    looked: Instant,
    looks: u64,
    /// The lines that were shown, or are older than the first ones, and the look that they were last seen in.
    seen: HashMap<String, u64>,
    /// Whether it was said that there are too many lines.
    crowded: bool,
}

pub(super) async fn tail(args: Tail) -> Result<(), Failure> {
    let mut follower = Follower {
        store: args.database.open()?,
        search: args.lines.search(),
        json: args.json,
        window: args.window,
        looked: Instant::now(),
        looks: 0,
        seen: HashMap::new(),
        crowded: false,
    };
    tokio::select! {
        done = follower.follow(args.last) => done,
        () = shutdown() => Ok(()),
    }
}

// === impl Follower ===

impl Follower {
    /// Until nobody reads it any more.
    async fn follow(&mut self, last: i32) -> Result<(), Failure> {
        // Before the newest ones: what is settled between the two is new to the next look.
        let old = self.look().await?;
        let newest = match last {
            0 => Vec::new(),
            last => self.store.history(&self.search, None, last).await?,
        };
        self.fresh(old);
        if !self.json {
            find::print_heading();
        }
        self.note(&newest);
        if !self.show(&newest)? {
            return Ok(());
        }
        let mut ticks = time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut out = false;
        loop {
            ticks.tick().await;
            match self.look().await {
                Ok(lines) => {
                    if out {
                        eprintln!("outbox-relay: the database answers again");
                    }
                    out = false;
                    let fresh = self.fresh(lines);
                    if !self.show(&fresh)? {
                        return Ok(());
                    }
                }
                Err(error @ (store::Error::Config(_) | store::Error::Refused(_))) => {
                    return Err(error.into());
                }
                Err(error) => {
                    if !out {
                        let error = text::tame(&error.to_string());
                        eprintln!("outbox-relay: {error}; what is missed is shown afterwards");
                    }
                    out = true;
                }
            }
        }
    }

    /// The lines of the window, newest first. It is longer by the time since the last answer, so an outage hides nothing.
    async fn look(&mut self) -> Result<Vec<Line>, store::Error> {
        let began = Instant::now();
        let mut window = self.window + began.duration_since(self.looked);
        if self.looks == 0 {
            window += MORE;
        }
        self.search.since = Some(format!("ago {} s", window.as_secs_f64()));
        let looked = self.pages().await;
        self.search.since = None;
        let lines = looked?;
        self.looked = began;
        if lines.len() >= MOST && !self.crowded {
            self.crowded = true;
            eprintln!(
                "outbox-relay: there are more than {MOST} lines in {}: of those before the newest {MOST}, what is settled late is \
                 not shown; a filter, or a shorter --window, shows all",
                text::show(self.window)
            );
        }
        Ok(lines)
    }

    async fn pages(&self) -> Result<Vec<Line>, store::Error> {
        let mut lines: Vec<Line> = Vec::new();
        loop {
            let after = lines.last().map(|line| &line.place);
            let page = self.store.history(&self.search, after, PAGE).await?;
            let full = i32::try_from(page.len()) == Ok(PAGE);
            lines.extend(page);
            if !full || lines.len() >= MOST {
                return Ok(lines);
            }
        }
    }

    /// Those that were not shown yet. All are known from now on, for as long as they may be seen again.
    fn fresh(&mut self, mut lines: Vec<Line>) -> Vec<Line> {
        self.looks += 1;
        let looks = self.looks;
        lines.retain(|line| self.seen.insert(name(line), looks).is_none());
        self.seen.retain(|_, look| *look + LOOKS > looks);
        lines
    }

    fn note(&mut self, lines: &[Line]) {
        let looks = self.looks;
        let known = lines.iter().map(|line| (name(line), looks));
        self.seen.extend(known);
    }

    /// Prints them, oldest first; whether somebody still reads.
    fn show(&self, lines: &[Line]) -> Result<bool, Failure> {
        for line in lines.iter().rev() {
            let read = match self.json {
                true => written(format!("{}\n", text::object(line)?).as_bytes()),
                false => find::print_line(line),
            };
            if !read {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What no other line has: its time, message, endpoint, attempt and sequence number; and how often the message had been replayed.
fn name(line: &Line) -> String {
    format!("{} {}", line.place, line.generation)
}
