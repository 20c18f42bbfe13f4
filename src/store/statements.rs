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
    ABORT_JOB = "abort_job",
    ACCEPT = "accept",
    ACCEPTED = "accepted",
    ADD_ENDPOINTS = "add_endpoints",
    ADD_LANES = "add_lanes",
    ADD_SCHEDULES = "add_schedules",
    ALERTS = "alerts",
    ANSWER_STEP = "answer_step",
    ARM = "arm",
    BEAT = "beat",
    BRIEFLY = "briefly",
    CANCEL = "cancel",
    CANCEL_SAGA = "cancel_saga",
    CLAIM = "claim",
    DEREGISTER = "deregister",
    DISARM = "disarm",
    DISCARD = "discard",
    DISCOVER = "discover",
    DOORBELL = "doorbell",
    EXPAND = "expand",
    EXPIRE = "expire",
    EXPIRED = "expired",
    FAILURES = "failures",
    FIND_SAGAS = "find_sagas",
    FIRE = "fire",
    FORGET_REQUESTS = "forget_requests",
    FORGET_SAGAS = "forget_sagas",
    HANG_UP = "hang_up",
    HISTORY = "history",
    HORIZON = "horizon",
    IDENTITY = "identity",
    JOBS = "jobs",
    KEEP = "keep",
    LIST = "list",
    LISTEN = "listen",
    LOAD = "load",
    MAINTAIN_PARTITIONS = "maintain_partitions",
    MARK_LISTENER = "mark_listener",
    MATCHING = "matching",
    MATCHING_SAGAS = "matching_sagas",
    MISSING_ROLES = "missing_roles",
    OLDEST_DUE = "oldest_due",
    OVERVIEW = "overview",
    OWN_BELL = "own_bell",
    PAUSE = "pause",
    PID = "pid",
    PLAIN = "plain",
    POSTPONE_NOTICE = "postpone_notice",
    PRESENT = "present",
    PUT_OFF = "put_off",
    QUEUED = "queued",
    REAP = "reap",
    RECOVER = "recover",
    REGISTER = "register",
    RELEASE_KEY = "release_key",
    REMOVE_NOTICE = "remove_notice",
    REPLAY = "replay",
    REPORT = "report",
    RERUN_SAGA = "rerun_saga",
    RESUME = "resume",
    RESUME_SAGA = "resume_saga",
    RING = "ring",
    RUN_JOB = "run_job",
    SCHEDULES = "schedules",
    SEALED = "sealed",
    SETTLE = "settle",
    SET_DIGEST = "set_digest",
    SET_GUARD = "set_guard",
    SET_UNROUTED = "set_unrouted",
    SHAPE = "shape",
    SHOW = "show",
    SHOW_SAGA = "show_saga",
    SKIP_STEP = "skip_step",
    STANDBY = "standby",
    START_JOB = "start_job",
    START_SAGA = "start_saga",
    STATUS_DEAD_LETTERS = "status_dead_letters",
    STATUS_ENDPOINTS = "status_endpoints",
    STATUS_LANES = "status_lanes",
    STATUS_RELAYS = "status_relays",
    TAKE_NOTICE = "take_notice",
    TAKE_TOKENS = "take_tokens",
    TEND_SAGAS = "tend_sagas",
    THIN_PARTITIONS = "thin_partitions",
    UNATTENDED = "unattended",
    UNLISTEN = "unlisten",
    VERSION = "version",
    WATCH = "watch",
    WATCH_CLIENT = "watch_client",
    WHY = "why",
}

/// Settings of a session that keeps the doorbell: several statements, none with parameters.
pub(super) const BELL_SESSION: Statement = Statement {
    name: "bell_session",
    text: include_str!("../../sql/bell_session.sql"),
};

/// Opens each transaction.
pub(super) const BEGIN: &str = include_str!("../../sql/begin.sql");
