//! How the database stands, as it was sampled.

/// How an endpoint stands in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its name.
    pub endpoint: String,
    /// It is paused.
    pub paused: bool,
    /// Its breaker: 0 closed, 1 half open, 2 open.
    pub breaker: i64,
    /// Messages that relays hold for it.
    pub leased: i64,
}

/// What waits for an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// Its name; empty for what no relay can deliver.
    pub endpoint: String,
    /// Pending messages, each lane counted up to a limit.
    pub messages: i64,
    /// How long its oldest message has been due, in seconds.
    pub oldest: f64,
}

/// How the database stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The endpoints that any relay ever had.
    pub endpoints: Vec<Standing>,
    /// What is pending, one for each endpoint.
    pub backlogs: Vec<Backlog>,
    /// Dead letters by endpoint and reason, of the newest ones.
    pub dead: Vec<(String, String, i64)>,
    /// Relays that live.
    pub relays: i64,
    /// Age of the oldest snapshot, in seconds: what was delivered since can't be vacuumed.
    pub horizon: f64,
    /// Whether inserts wake a relay.
    pub bell: bool,
}
