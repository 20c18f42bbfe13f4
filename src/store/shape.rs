//! Whether the schema is as the migrations made it: what was altered by hand is named at start, before it can lose or hide a row.
//!
//! `sql/shape.sql` describes what is there, `sql/shape.txt` what the migrations of this binary make; a test keeps the two in
//! step on every server. Tables are the same for all releases of one schema version. Functions can be newer: those that
//! the last migration wrote are fine, whoever ran it, and those that nobody's migration wrote are not.

use std::{collections::BTreeMap, fmt};

use super::{Error, Store, sql};

/// Lines of object, tab, shape; ascending.
const EXPECTED: &str = include_str!("../../sql/shape.txt");

/// So many differences are named at once.
const NAMED: usize = 5;

/// What was altered since the last migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alterations {
    /// What could lose, hide, repeat or reorder a message, or harm the application's tables; one phrase each.
    pub broken: Vec<String>,
    /// What costs time at most.
    pub tuned: Vec<String>,
    /// Functions that another release's migration wrote.
    pub newer: Vec<String>,
    /// What stands at our tables and is not ours, and runs or decides when rows are written: triggers, rules, constraints,
    /// unique indexes, columns that want a value.
    pub foreign: Vec<String>,
}

/// What an object is and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference<'a> {
    Missing,
    Changed { is: &'a str, should: &'a str },
    Foreign { is: &'a str },
}

/// Without these some look into the history takes longer.
const HISTORY: [&str; 3] = [
    "index attempts_id",
    "index dead_letters_died_at",
    "index delivered_id",
];

impl Store {
    /// Compares the schema with what this binary's migrations make.
    pub async fn alterations(&self) -> Result<Alterations, Error> {
        let both = self.call_both((sql::PLAIN, &[]), Some((sql::SHAPE, &[])));
        let (_, rows) = both.await?;
        let found: BTreeMap<&str, &str> = rows
            .iter()
            .map(|row| (row.get("object"), row.get("shape")))
            .collect();
        let differences = compare(&expected(), &found);
        let asked = ["column meta.functions", "function functions_digest()"];
        let asks = asked.iter().any(|object| differences.contains_key(object));
        let sealed = if differences.is_empty() || asks {
            false
        } else {
            let row = self.call(sql::SEALED, &[]).await?.pop();
            row.is_some_and(|row| row.get("sealed"))
        };
        Ok(judge(&differences, sealed))
    }

    /// Refuses a schema that was altered, unless it is to be put up with; returns what is to be said of one that can be worked with.
    pub(super) async fn check_shape(&self) -> Result<Vec<String>, Error> {
        let all = self.alterations().await?;
        let mut notes = Vec::new();
        if !all.broken.is_empty() {
            let altered = format!(
                "the schema was altered since it was migrated: {}. `outbox-relay migrate` restores functions; undo the rest by \
                 hand, as `outbox-relay migrate --print` has it",
                list(&all.broken)
            );
            if !self.lenient {
                return Err(Error::Refused(format!(
                    "{altered}, or say altered_schema = \"warn\" under [database]"
                )));
            }
            notes.push(altered);
        }
        if !all.tuned.is_empty() {
            notes.push(format!(
                "not as it was migrated, which can cost time: {}",
                list(&all.tuned)
            ));
        }
        if !all.newer.is_empty() {
            notes.push(format!(
                "the last migration was that of another release, which changed {}",
                list(&all.newer)
            ));
        }
        if !all.foreign.is_empty() {
            notes.push(format!(
                "not of the outbox, and they can refuse or change its rows: {}",
                list(&all.foreign)
            ));
        }
        Ok(notes)
    }
}

fn expected() -> BTreeMap<&'static str, &'static str> {
    EXPECTED
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect()
}

/// Whether there are these is a setting.
const BELLS: [&str; 2] = ["trigger messages.messages_ring", "trigger sagas.sagas_ring"];

fn compare<'a>(
    expected: &BTreeMap<&'a str, &'a str>,
    found: &BTreeMap<&'a str, &'a str>,
) -> BTreeMap<&'a str, Difference<'a>> {
    let ours = expected.iter().filter_map(|(object, should)| {
        let difference = match found.get(object) {
            Some(is) if is == should => return None,
            Some(is) => Difference::Changed { is, should },
            // Its absence is a setting.
            None if BELLS.contains(object) => return None,
            None => Difference::Missing,
        };
        Some((*object, difference))
    });
    let theirs = found
        .iter()
        .filter(|(object, _)| !expected.contains_key(*object));
    ours.chain(theirs.map(|(object, is)| (*object, Difference::Foreign { is })))
        .collect()
}

fn judge(differences: &BTreeMap<&str, Difference<'_>>, sealed: bool) -> Alterations {
    let mut all = Alterations::default();
    let mut foreign = Vec::new();
    for (object, difference) in differences {
        let function = object.starts_with("function ");
        let slow = object.starts_with("settings of ") || HISTORY.contains(object);
        let phrase = match *difference {
            Difference::Changed { .. } if function && sealed => {
                all.newer.push(name(object));
                continue;
            }
            Difference::Foreign { is } => {
                foreign.extend(decides(object, is).map(|rank| (rank, format!("{object} ({is})"))));
                continue;
            }
            Difference::Missing => format!("{object} is missing"),
            Difference::Changed { .. } if function => format!("{} is another one", name(object)),
            Difference::Changed { is, should } => {
                format!("{object} is `{is}` and should be `{should}`")
            }
        };
        match slow {
            true => all.tuned.push(phrase),
            false => all.broken.push(phrase),
        }
    }
    // What runs comes first: a list that is cut must not leave it out.
    foreign.sort_by_key(|(rank, _)| *rank);
    all.foreign = foreign.into_iter().map(|(_, phrase)| phrase).collect();
    all
}

/// Whether something of somebody else's can refuse, change or hide what is written to our tables; the lower, the more.
fn decides(object: &str, is: &str) -> Option<u8> {
    let (kind, rest) = object.split_once(' ')?;
    let table = rest.split(['.', ' ']).next().unwrap_or_default();
    let expected = expected();
    let ours = |table: &str| expected.contains_key(format!("table {table}").as_str());
    match kind {
        "trigger" | "rule" if ours(table) => Some(0),
        "constraint" if ours(table) => Some(1),
        "index" if is.starts_with("CREATE UNIQUE") => {
            let on = is.split(" ON ").nth(1)?.trim_start_matches("ONLY ");
            let table = on.split(' ').next()?.rsplit('.').next()?;
            ours(table).then_some(1)
        }
        "column" if ours(table) && is.contains("NOT NULL") && !is.contains("default") => Some(1),
        _ => None,
    }
}

/// A function's name is enough: its parameters would fill the line.
fn name(object: &str) -> String {
    object.split('(').next().unwrap_or(object).to_owned()
}

fn list(phrases: &[String]) -> impl fmt::Display {
    let mut text = phrases
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    if let Some(more) = phrases.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl FnOnce(&mut BTreeMap<&str, &str>), sealed: bool) -> Alterations {
        let mut found = expected();
        change(&mut found);
        judge(&compare(&expected(), &found), sealed)
    }

    #[test]
    fn what_is_as_it_was_made_is_fine() {
        assert!(expected().len() > 200);
        assert_eq!(judged(|_| {}, false), Alterations::default());
        // No trigger where inserts are to wake nobody; an index for somebody's own queries.
        let all = judged(
            |found| {
                for bell in BELLS {
                    found.remove(bell).unwrap();
                }
                found.insert(
                    "index mine",
                    "CREATE INDEX mine ON outbox.messages USING btree (created_at)",
                );
                found.insert("column messages.tenant", "text");
            },
            false,
        );
        assert_eq!(all, Alterations::default());
    }

    #[test]
    fn functions_of_another_release_are_not_those_of_somebody() {
        let function = *expected()
            .keys()
            .find(|object| object.starts_with("function settle("))
            .unwrap();
        for (sealed, newer, broken) in [
            (true, vec!["function settle"], vec![]),
            (false, vec![], vec!["function settle is another one"]),
        ] {
            let all = judged(
                |found| assert!(found.insert(function, "x").is_some()),
                sealed,
            );
            assert_eq!((all.newer, all.broken), (owned(&newer), owned(&broken)));
        }
        let all = judged(|found| assert!(found.remove(function).is_some()), true);
        assert_eq!(all.broken, [format!("{function} is missing")]);
    }

    fn owned(phrases: &[&str]) -> Vec<String> {
        phrases.iter().map(|&phrase| phrase.to_owned()).collect()
    }

    #[test]
    fn a_long_list_is_cut() {
        let phrases: Vec<String> = (1..=7).map(|n| n.to_string()).collect();
        assert_eq!(list(&phrases).to_string(), "1; 2; 3; 4; 5; and 2 more");
        assert_eq!(list(&phrases[..5]).to_string(), "1; 2; 3; 4; 5");
    }
}
