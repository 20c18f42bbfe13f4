//! How much of what was done is written down.

use std::fmt;

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
