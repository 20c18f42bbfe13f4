//! How a relay is: whether its loop turns, whether it can deliver, and if not, why.
//!
//! Model: the loop writes down what happened to it, whoever asks judges that by the clock of the moment. Nobody asks the
//! database for an answer, so a probe costs it nothing and can't hang with it.
//! What others break is not this relay's fault: an endpoint that fails, is paused or asks to be left alone makes
//! nobody unready, or a receiver's outage would take the application's pods out of service.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::renewal::Lifeline;
use crate::message::Lane;

/// A loop that has neither turned nor had an answer of the database for so long hangs: each call gives up long before.
const STUCK: Duration = Duration::from_secs(180);

/// A call that has had no answer for so long, or a loop that does not turn, delivers nothing meanwhile. A loop that sleeps turns
/// once a poll.
const SILENT: Duration = Duration::from_secs(10);

/// A lane whose row, or whose endpoint's row, was locked at each claim for so long is held by somebody, who is no relay.
const LOCKED: Duration = Duration::from_secs(60);

/// ... if it was tried lately.
const LATELY: Duration = Duration::from_secs(15);

/// Claims that all failed for so long, though the database answers: a function or a right is missing, and nothing is delivered.
const REFUSED: Duration = Duration::from_secs(5);

/// What a relay's loop says of itself, for those who ask from outside. Cheap to clone: all clones are one.
#[derive(Clone, Debug)]
pub struct Vitals(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// When the loop turned last.
    turned: Instant,
    registered: bool,
    stopping: bool,
    /// Since when no call of the database succeeded.
    failing: Option<Instant>,
    lifeline: Option<Lifeline>,
    /// Lanes that can't be claimed because somebody has a lock: since when, and the last time.
    locked: BTreeMap<Lane, (Instant, Instant)>,
    /// Claims, and claims of fan-out, that failed at each try.
    refused: BTreeMap<&'static str, Refused>,
    /// The loop turns at least so often.
    poll: Duration,
    /// How long may pass from when a message is due, if that was set.
    limit: Option<Duration>,
    /// The oldest that could be delivered, its age then, and when that was.
    oldest: Option<(Lane, Duration, Instant)>,
}

/// What kept failing.
#[derive(Debug)]
struct Refused {
    since: Instant,
    last: Instant,
    error: String,
}

/// One thing that must hold for a relay to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// `registered`, `database`, `lease`, `claims`, `due` or `running`.
    pub name: &'static str,
    /// Why it does not hold; `None` = it does.
    pub problem: Option<String>,
}

impl Vitals {
    /// Of a relay that is about to start.
    pub fn new() -> Vitals {
        Vitals(Arc::new(Mutex::new(State {
            turned: Instant::now(),
            registered: false,
            stopping: false,
            failing: None,
            lifeline: None,
            locked: BTreeMap::new(),
            refused: BTreeMap::new(),
            poll: Duration::ZERO,
            limit: None,
            oldest: None,
        })))
    }

    /// Whether the loop turns. An outage of the database does not stop it, so a restart would not help there.
    ///
    /// # Errors
    ///
    /// Since when it does not.
    pub fn live(&self) -> Result<(), String> {
        self.live_at(Instant::now())
    }

    fn live_at(&self, now: Instant) -> Result<(), String> {
        let state = self.state();
        let stuck = now.duration_since(state.turned);
        // A drain has an end of its own.
        if stuck > STUCK && !state.stopping {
            return Err(format!("the loop has not turned for {} s", stuck.as_secs()));
        }
        Ok(())
    }

    /// Whether it was registered in a database that it may deliver from.
    pub fn started(&self) -> bool {
        self.state().registered
    }

    /// All that must hold for messages to be delivered.
    pub fn ready(&self) -> Vec<Check> {
        self.ready_at(Instant::now())
    }

    fn ready_at(&self, now: Instant) -> Vec<Check> {
        let state = self.state();
        let check = |name, problem: Option<String>| Check { name, problem };
        let seconds = |since: Instant| now.duration_since(since).as_secs();
        let locked = state.locked.iter().find(|(_, (since, last))| {
            last.duration_since(*since) >= LOCKED && now.duration_since(*last) < LATELY
        });
        // During an outage nothing is claimed: that is the database's check.
        let refused = state.refused.values().find(|refused| {
            refused.last.duration_since(refused.since) >= REFUSED
                && now.duration_since(refused.last) < LATELY + state.poll
        });
        let silent = now.duration_since(state.turned) > SILENT + state.poll;
        let silent = || silent.then(|| format!("no answer for {} s", seconds(state.turned)));
        let late = state.limit.and_then(|limit| {
            let (lane, age, at) = state.oldest.as_ref()?;
            let age = *age + now.duration_since(*at);
            (age > limit).then(|| {
                format!(
                    "a message of topic {} has been due for {} s",
                    lane.topic,
                    age.as_secs()
                )
            })
        });
        vec![
            check(
                "running",
                state.stopping.then(|| "it was told to stop".into()),
            ),
            check(
                "registered",
                (!state.registered).then(|| "not registered in the database yet".into()),
            ),
            check(
                "database",
                state
                    .failing
                    .map(|since| format!("no call has succeeded for {} s", seconds(since)))
                    .or_else(silent),
            ),
            check(
                "lease",
                state
                    .lifeline
                    .as_ref()
                    .is_some_and(|lifeline| !lifeline.may_start())
                    .then(|| "the lease could not be renewed in time".into()),
            ),
            check(
                "claims",
                refused
                    .map(|Refused { since, error, .. }| {
                        format!("each has failed for {} s: {error}", seconds(*since))
                    })
                    .or_else(|| {
                        let (lane, (since, _)) = locked?;
                        Some(format!(
                            "somebody has locked the row of topic {} or of its endpoint for {} s",
                            lane.topic,
                            seconds(*since)
                        ))
                    }),
            ),
            check("due", late),
        ]
    }

    pub(super) fn turned(&self, now: Instant) {
        self.state().turned = now;
    }

    /// What the loop goes by from now on.
    pub(super) fn plan(&self, poll: Duration, limit: Option<Duration>) {
        let mut state = self.state();
        state.poll = poll;
        state.limit = limit;
    }

    pub(super) fn registered(&self, lifeline: Lifeline) {
        let mut state = self.state();
        state.registered = true;
        state.failing = None;
        state.lifeline = Some(lifeline);
    }

    pub(super) fn stopping(&self) {
        self.state().stopping = true;
    }

    /// A call of the database failed. There may be many in one turn, so that is a sign of life.
    pub(super) fn failed(&self, now: Instant) {
        let mut state = self.state();
        state.turned = now;
        state.failing.get_or_insert(now);
    }

    /// ... or it succeeded.
    pub(super) fn succeeded(&self, now: Instant) {
        let mut state = self.state();
        state.turned = now;
        state.failing = None;
    }

    /// A claim, or what else is named here, failed. That the database then answers something else does not mend it.
    pub(super) fn refused(&self, what: &'static str, error: &dyn Display, now: Instant) {
        let mut state = self.state();
        state.turned = now;
        let error = error.to_string();
        let refused = state.refused.entry(what).or_insert(Refused {
            since: now,
            last: now,
            error: String::new(),
        });
        refused.last = now;
        refused.error = error;
    }

    /// ... or it was answered.
    pub(super) fn answered(&self, what: &'static str) {
        self.state().refused.remove(what);
    }

    /// A claim of this lane found a row locked, or it did not.
    pub(super) fn claimed(&self, lane: &Lane, locked: bool, now: Instant) {
        let mut state = self.state();
        let lately = |last: Instant| now.duration_since(last) < LATELY;
        if !locked {
            state.locked.remove(lane);
        } else if let Some((since, last)) = state.locked.get_mut(lane) {
            if !lately(*last) {
                *since = now;
            }
            *last = now;
        } else {
            state.locked.retain(|_, (_, last)| lately(*last));
            state.locked.insert(lane.clone(), (now, now));
        }
    }

    pub(super) fn oldest(&self, oldest: Option<(Lane, Duration)>, now: Instant) {
        self.state().oldest = oldest.map(|(lane, age)| (lane, age, now));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whatever panicked with it left whole values behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Vitals {
    fn default() -> Vitals {
        Vitals::new()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lane(topic: &str) -> Lane {
        Lane {
            topic: topic.into(),
            endpoint: String::new(),
        }
    }

    /// The checks that don't hold, with their reasons.
    fn problems(vitals: &Vitals, now: Instant) -> Vec<String> {
        let checks = vitals.ready_at(now).into_iter();
        let bad = checks.filter_map(|check| Some(format!("{}: {}", check.name, check.problem?)));
        bad.collect()
    }

    /// Of a relay that has just been registered, and what renews its lease.
    fn registered(lease: Duration) -> (Vitals, watch::Sender<Instant>, Instant) {
        let (vitals, now) = (Vitals::new(), Instant::now());
        let (sender, lifeline) = Lifeline::new(now, lease);
        vitals.registered(lifeline);
        (vitals, sender, now)
    }

    #[test]
    fn it_is_live_while_its_loop_turns() {
        let (vitals, now) = (Vitals::new(), Instant::now());
        vitals.turned(now);
        assert_eq!(vitals.live_at(now + STUCK), Ok(()));
        let late = now + STUCK + SECOND;
        let dead = Err("the loop has not turned for 181 s".into());
        assert_eq!(vitals.live_at(late), dead);
        vitals.turned(late);
        assert_eq!(vitals.live_at(late), Ok(()));
        // A drain has an end of its own.
        vitals.stopping();
        assert_eq!(vitals.live_at(late + STUCK + SECOND), Ok(()));
    }

    #[test]
    fn it_is_ready_from_its_registration_to_its_stop() {
        let vitals = Vitals::new();
        assert!(!vitals.started());
        let not_yet = ["registered: not registered in the database yet"];
        assert_eq!(problems(&vitals, Instant::now()), not_yet);
        let (vitals, sender, now) = registered(15 * SECOND);
        assert!(vitals.started() && problems(&vitals, now).is_empty());
        // The last third of a lease that nobody renewed.
        sender.send_replace(now + 3 * SECOND);
        let late = ["lease: the lease could not be renewed in time"];
        assert_eq!(problems(&vitals, now), late);
        sender.send_replace(now + 15 * SECOND);
        assert!(problems(&vitals, now).is_empty());
        vitals.stopping();
        assert_eq!(problems(&vitals, now), ["running: it was told to stop"]);
    }

    #[test]
    fn an_outage_is_counted_from_its_first_failure_to_the_first_success() {
        let (vitals, _sender, now) = registered(600 * SECOND);
        vitals.failed(now);
        vitals.failed(now + 5 * SECOND);
        let says = ["database: no call has succeeded for 7 s"];
        assert_eq!(problems(&vitals, now + 7 * SECOND), says);
        vitals.succeeded(now + 7 * SECOND);
        assert!(problems(&vitals, now + 7 * SECOND).is_empty());
        let silent = ["database: no answer for 11 s"];
        assert_eq!(problems(&vitals, now + 18 * SECOND), silent);
        // Calls in one turn, however many.
        assert_eq!(vitals.live_at(now + STUCK + 7 * SECOND), Ok(()));
    }

    #[test]
    fn a_lock_that_stays_is_a_problem_and_one_that_others_take_in_turn_is_none() {
        let (vitals, _sender, mut now) = registered(600 * SECOND);
        for second in 0..120 {
            now += SECOND;
            vitals.turned(now);
            vitals.claimed(&lane("a"), true, now);
            vitals.claimed(&lane("b"), second % 10 > 0, now);
            // Tried now and then, locked each time: nobody waits for it.
            if second % 30 == 0 {
                vitals.claimed(&lane("c"), true, now);
            }
        }
        let locked = "claims: somebody has locked the row of topic a or of its endpoint for 119 s";
        assert_eq!(problems(&vitals, now), [locked]);
        vitals.claimed(&lane("a"), false, now);
        assert!(problems(&vitals, now).is_empty());
        vitals.claimed(&lane("a"), true, now);
        assert!(problems(&vitals, now).is_empty());
    }

    #[test]
    fn claims_that_always_fail_are_told_whatever_else_succeeds() {
        let (vitals, _sender, mut now) = registered(600 * SECOND);
        for _ in 0..6 {
            assert!(problems(&vitals, now).is_empty());
            vitals.refused("claim", &"there is no such function", now);
            vitals.succeeded(now);
            vitals.answered("expand");
            now += SECOND;
        }
        let says = "claims: each has failed for 6 s: there is no such function";
        assert_eq!(problems(&vitals, now), [says]);
        // Where nothing is claimed any more nobody knows.
        vitals.turned(now + LATELY);
        assert!(problems(&vitals, now + LATELY).is_empty());
        vitals.answered("claim");
        assert!(problems(&vitals, now).is_empty());
        vitals.refused("claim", &"once", now);
        assert!(problems(&vitals, now + SECOND).is_empty());
    }

    #[test]
    fn the_oldest_grows_older_until_it_is_looked_for_again() {
        let (vitals, _sender, now) = registered(600 * SECOND);
        vitals.oldest(Some((lane("a"), 50 * SECOND)), now);
        let later = now + 100 * SECOND;
        vitals.turned(later);
        assert!(problems(&vitals, later).is_empty(), "no limit is set");
        vitals.plan(SECOND, Some(150 * SECOND));
        assert!(problems(&vitals, later).is_empty());
        let late = ["due: a message of topic a has been due for 151 s"];
        assert_eq!(problems(&vitals, later + SECOND), late);
        vitals.oldest(None, later);
        assert!(problems(&vitals, later + SECOND).is_empty());
    }
}
