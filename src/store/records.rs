//! How much of what was done is written down.

use std::{fmt, time::Duration};

/// What a settle writes beside what it does to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    /// Whether payloads of delivered messages are kept.
    pub payloads: bool,
    /// Which attempts are kept.
    pub history: History,
}

/// Which attempts the history has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// Every one.
    #[default]
    All,
    /// Those that were no delivery, and every death.
    Failures,
    /// None. What a dead relay had, what expired without a request and what operators did is written all the same.
    None,
}

/// How long what is written down is kept, from the end of its day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Attempts; whole days, as the partitions are.
    pub attempts: Duration,
    /// Attempts that delivered; whole days, not longer than the others.
    pub successes: Duration,
    /// Payloads of delivered messages, for replay; zero = not kept at all.
    pub delivered: Duration,
}

/// What was done to the partitions of history and archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// Of days to come.
    pub made: i32,
    /// They were past retention.
    pub dropped: i32,
    /// Their successes were; one in a call at most.
    pub thinned: i32,
}

impl Records {
    /// All there is.
    pub const ALL: Records = Records {
        payloads: true,
        history: History::All,
    };

    /// Every attempt, and no payload of what was delivered.
    pub const ATTEMPTS: Records = Records {
        payloads: false,
        ..Records::ALL
    };
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl History {
    /// As `outbox.settle` and the configuration call it.
    pub fn as_str(self) -> &'static str {
        match self {
            History::All => "all",
            History::Failures => "failures",
            History::None => "none",
        }
    }
}
