//! When a schedule fires: pure. Cron expressions on the clock of a time zone.
//!
//! An expression with one hour, one minute and one second fires once on each of its days, as croner has it (the Open Cron Pattern
//! Specification): where the clock is set forward over its time, when the gap is over; where it is set back over it, the first time.
//! All others are intervals (`*/15 * * * *`, `0 * * * *`, `30 1,2,3 * * *`) and fire as time passes: not in the gap, and in both halves of
//! what comes twice. The rules of time zones are those that this binary was built with, so that all relays of
//! a release have the same.
//!
//! What has fired is decided by the database's clock and its table (`sql/functions/fire.sql`). A fire time that nobody inserted a message
//! for within [`LATE`] was missed.

use std::{cmp::Ordering, time::Duration};

use croner::{
    CivilDate, CivilDateTime, CivilTime, Cron, CronDateTime, Resolution, Weekday,
    errors::CronError,
    parser::{CronParser, Year},
};
use jiff::{
    SignedDuration, Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};
use serde_json::Value;
use uuid::Uuid;

/// A fire time is missed when it is older.
pub const LATE: Duration = Duration::from_secs(60);

/// Fire times that are no later than that: a second's each.
const FRESH: usize = 61;

/// The ids of messages are made in it.
const NAMESPACE: Uuid = Uuid::from_u128(0x5f0c_9bd1_6f0e_4c35_9b0b_0f5a_3c1d_7e42);

/// A schedule, as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// When it fires.
    pub times: Times,
    /// What becomes of fire times that were missed.
    pub missed: Missed,
    /// Of its messages.
    pub topic: String,
    /// Of its messages.
    pub key: Option<String>,
    /// Of its messages.
    pub kind: Option<String>,
    /// JSON, sent byte for byte.
    pub payload: Option<String>,
    /// Of its messages, an object of strings.
    pub headers: Value,
}

/// What becomes of fire times that were missed, because no relay ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The last of them is made up for, unless the next one has come.
    Once,
    /// The last so many are made up for.
    All(usize),
}

/// A cron expression on the clock of a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    cron: Cron,
    zone: TimeZone,
}

/// What is to be done at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// All up to here is decided then.
    pub until: Timestamp,
    /// Those that get a message, ascending.
    pub times: Vec<Timestamp>,
}

/// A time on the clock of its zone, for croner.
#[derive(Clone)]
struct Local<'z> {
    at: Timestamp,
    zone: &'z TimeZone,
}

// === impl Schedule ===

impl Schedule {
    /// What has come since `fired_at`; `None`: nothing.
    pub fn due(&self, fired_at: Timestamp, now: Timestamp) -> Option<Due> {
        let most = match self.missed {
            Missed::Skip | Missed::Once => FRESH,
            Missed::All(most) => most + FRESH,
        };
        let mut times = self.times.between(fired_at, now, most);
        let until = *times.last()?;
        let missed = |time: &Timestamp| now.duration_since(*time).unsigned_abs() > LATE;
        let old = times.iter().filter(|time| missed(time)).count();
        let kept = match self.missed {
            Missed::Skip => 0,
            Missed::Once => usize::from(old == times.len()),
            Missed::All(most) => old.min(most),
        };
        times.drain(..old - kept);
        Some(Due { until, times })
    }

    /// The id of the message of a fire time: the same, whoever makes it.
    pub fn id(&self, time: Timestamp) -> Uuid {
        Uuid::new_v5(&NAMESPACE, format!("{} {time}", self.name).as_bytes())
    }
}

// === impl Missed ===

impl Missed {
    /// As the configuration says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Missed::Skip => "skip",
            Missed::Once => "once",
            Missed::All(_) => "all",
        }
    }
}

// === impl Times ===

impl Times {
    /// Reads an expression of five fields, or six with seconds before them, or a word such as `@daily`.
    ///
    /// # Errors
    ///
    /// What is wrong with it; it may also never fire.
    pub fn new(cron: &str, zone: TimeZone) -> Result<Times, String> {
        let parser = CronParser::builder().year(Year::Disallowed).build();
        let cron = parser.parse(cron).map_err(|error| error.to_string())?;
        let times = Times { cron, zone };
        // Each date of the calendar comes within 28 years, but for a century without a leap year.
        let some = Timestamp::UNIX_EPOCH;
        match times.next(some) {
            Some(_) => Ok(times),
            None => Err("it never fires".into()),
        }
    }

    /// The time zone of this name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn zone(name: &str) -> Result<TimeZone, String> {
        // Others may mean this machine's, which differs from that of another relay.
        let zone = TimeZone::get(name).ok().filter(|zone| !zone.is_unknown());
        zone.ok_or_else(|| format!("there is no time zone {name:?}"))
    }

    /// The expression, and the zone's name.
    pub fn shown(&self) -> String {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        format!("{} {zone}", self.cron.as_str())
    }

    /// The next one after this; `None`: there is none in the years that are known.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let start = Local {
            at: after,
            zone: &self.zone,
        };
        let next = self.cron.find_next_occurrence(&start, false).ok()?;
        Some(next.at)
    }

    /// The same on the clock of its zone.
    pub fn next_shown(&self, after: Timestamp) -> Option<(Timestamp, String)> {
        let next = self.next(after)?;
        let local = self.zone.to_datetime(next);
        let offset = self.zone.to_offset(next);
        let shown = format!("{} {offset}", local.strftime("%Y-%m-%d %H:%M:%S"));
        Some((next, shown))
    }

    /// The last so many after one moment and up to another, ascending.
    fn between(&self, after: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        // From the near past on, and from further back where that has too few: years of seconds are not to be counted.
        let mut back = SignedDuration::from_secs(60);
        loop {
            let start = until.checked_sub(back).unwrap_or(Timestamp::MIN).max(after);
            let mut times = Vec::new();
            let mut next = self.next(start);
            while let Some(time) = next.filter(|time| *time <= until) {
                times.push(time);
                next = self.next(time);
            }
            if times.len() >= most || start == after {
                times.drain(..times.len().saturating_sub(most));
                return times;
            }
            back = back.saturating_mul(8);
        }
    }
}

// === impl Local ===

impl CronDateTime for Local<'_> {
    fn to_civil(&self) -> CivilDateTime {
        let time = self.zone.to_datetime(self.at);
        let part = |part: i8| u32::from(part.unsigned_abs());
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(
                i32::from(time.year()),
                part(time.month()),
                part(time.day()),
            ),
            CivilTime::from_parts_unchecked(
                part(time.hour()),
                part(time.minute()),
                part(time.second()),
            ),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        let day = self.zone.to_datetime(self.at).weekday();
        let day = day.to_sunday_zero_offset();
        Weekday::from_days_from_sunday(u32::from(day.unsigned_abs()))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let time = DateTime::new(
            year,
            part(civil.month())?,
            part(civil.day())?,
            part(civil.hour())?,
            part(civil.minute())?,
            part(civil.second())?,
            0,
        );
        let time = time.map_err(|_| CronError::InvalidDate)?;
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        let known = |at: Result<Timestamp, jiff::Error>| match at {
            Ok(at) => Ok(Local { at, ..*self }),
            Err(_) => Err(CronError::InvalidTime),
        };
        Ok(match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => {
                Resolution::Single(known(ambiguous.unambiguous())?)
            }
            AmbiguousOffset::Fold { .. } => {
                let earlier = known(ambiguous.earlier())?;
                Resolution::Ambiguous(earlier, known(ambiguous.later())?)
            }
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        let at = self.at.checked_add(SignedDuration::from_secs(seconds));
        Some(Local {
            at: at.ok()?,
            ..*self
        })
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

#[cfg(test)]
mod tests;
