//! Every statement that the relay runs, by the name of its file in `sql/`.

/// A whole statement and the name of its file.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The file's name without `.sql`.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

macro_rules! statements {
    ($($constant:ident = $name:literal),+ $(,)?) => {
        $(pub(super) const $constant: Statement =
            Statement { name: $name, text: include_str!(concat!("../../sql/", $name, ".sql")) };)+

        /// All of them, so that a test can prepare each against the schema.
        pub const STATEMENTS: &[Statement] = &[$($constant),+];
    };
}

statements! {
    ADD_ENDPOINTS = "add_endpoints",
    ADD_LANES = "add_lanes",
    CANCEL = "cancel",
    CLAIM = "claim",
    DEREGISTER = "deregister",
    DISCOVER = "discover",
    EXPAND = "expand",
    EXPIRE = "expire",
    EXPIRED = "expired",
    IDENTITY = "identity",
    LOAD = "load",
    MAINTAIN_PARTITIONS = "maintain_partitions",
    MISSING_ROLES = "missing_roles",
    OBSERVE = "observe",
    PAUSE = "pause",
    PRESENT = "present",
    PUT_OFF = "put_off",
    REAP = "reap",
    RECOVER = "recover",
    REGISTER = "register",
    RENEW = "renew",
    REPORT = "report",
    RESUME = "resume",
    SETTLE = "settle",
    SET_DIGEST = "set_digest",
    SET_GUARD = "set_guard",
    SET_UNROUTED = "set_unrouted",
    STATUS_DEAD_LETTERS = "status_dead_letters",
    STATUS_ENDPOINTS = "status_endpoints",
    STATUS_LANES = "status_lanes",
    STATUS_RELAYS = "status_relays",
    TAKE_TOKENS = "take_tokens",
    VERSION = "version",
}

/// Opens each transaction.
pub(super) const BEGIN: &str = include_str!("../../sql/begin.sql");
