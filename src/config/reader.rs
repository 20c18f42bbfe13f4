//! Reads a TOML file and its overrides key by key, and remembers everything that is wrong.
//!
//! A reader that stops at the first error makes a person start a relay seven times to mend seven typing errors, so a
//! getter that fails notes the problem, gives the default back and lets the others go on. A key is known because a getter
//! asked for it: there is no list of keys to keep in step, and what nobody asked for, in the file or under `OUTBOX__` in
//! the environment, is reported as unknown at the end.
//!
//! A secret's value never gets into a message, nor does a text that may hold one by mistake ([`units::quoted`]).

mod getters;
mod section;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Problem, units};

pub(crate) use section::Section;

/// What every override begins with.
pub(crate) const PREFIX: &str = "OUTBOX__";

/// One file and its overrides, and what came up while they were read.
pub(crate) struct Reader<'a> {
    text: &'a str,
    root: DeTable<'a>,
    environment: &'a BTreeMap<String, String>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    problems: Vec<Problem>,
    /// The keys that getters asked for, by the path of their table.
    known: BTreeMap<String, BTreeSet<&'static str>>,
    /// The variables that getters asked for, each with the path that it overrides.
    variables: BTreeMap<String, String>,
    /// Where the values are that were found, by path.
    found: BTreeMap<String, Place>,
    /// The paths of the values that are wrong.
    wrong: BTreeSet<String>,
    /// What the digest is made of, by name.
    effective: BTreeMap<String, String>,
}

#[derive(Clone)]
enum Place {
    Line(usize),
    Variable(String),
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Parses the file; the error is what is wrong with its syntax.
    pub(crate) fn new(
        text: &'a str,
        environment: &'a BTreeMap<String, String>,
    ) -> Result<Reader<'a>, Vec<Problem>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut problems: Vec<Problem> = Vec::new();
        for error in errors {
            // Not the error's Display: that shows the line, which may hold a secret.
            let problem = Problem {
                line: error.span().map(|span| line(text, span.start)),
                key: String::new(),
                message: format!("not valid TOML: {}", error.message()),
            };
            // A second error on a line is mostly an echo of the first.
            if problems.iter().all(|earlier| earlier.line != problem.line) {
                problems.push(problem);
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Reader {
            text,
            root: root.into_inner(),
            environment,
            state: RefCell::default(),
        })
    }

    /// The top of the file.
    pub(crate) fn root(&self) -> Section<'_> {
        Section::root(self)
    }

    /// A variable of the environment that is not an override; an empty one counts as missing.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let value = self.environment.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Notes a problem with a variable of the environment.
    pub(crate) fn variable_problem(&self, name: &str, message: String) {
        self.push("", Some(&Place::Variable(name.into())), message);
    }

    /// Reports what nobody asked for; gives the digest of the effective values, or all problems.
    pub(crate) fn finish(self) -> Result<String, Vec<Problem>> {
        self.unknown_keys("", &self.root);
        self.unknown_variables();
        let state = self.state.into_inner();
        if state.problems.is_empty() {
            Ok(digest(&state.effective))
        } else {
            Err(state.problems)
        }
    }

    fn unknown_keys(&self, path: &str, table: &DeTable<'_>) {
        // A table where a value was asked for has its problem already.
        let Some(known) = self.state.borrow().known.get(path).cloned() else {
            return;
        };
        for (key, value) in table {
            let inner = join(path, key.get_ref());
            if !known.contains(key.get_ref().as_ref()) {
                let hint = closest(key.get_ref(), known.iter().copied()).map_or_else(
                    || {
                        let known: Vec<&str> = known.iter().copied().collect();
                        format!("known here: {}", known.join(", "))
                    },
                    |close| format!("did you mean {close}?"),
                );
                let place = Place::Line(line(self.text, key.span().start));
                self.push(&inner, Some(&place), format!("unknown key; {hint}"));
                continue;
            }
            match value.get_ref() {
                DeValue::Table(table) => self.unknown_keys(&inner, table),
                DeValue::Array(items) => {
                    for (position, item) in items.iter().enumerate() {
                        if let DeValue::Table(table) = item.get_ref() {
                            self.unknown_keys(&format!("{inner}[{position}]"), table);
                        }
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => {}
            }
        }
    }

    fn unknown_variables(&self) {
        let known = self.state.borrow().variables.clone();
        for name in self.environment.keys() {
            if name.starts_with(PREFIX) && !known.contains_key(name) {
                let hint = closest(name, known.keys().map(String::as_str))
                    .map_or_else(String::new, |close| format!("; did you mean {close}?"));
                let message = format!("no such setting, or no such endpoint in this file{hint}");
                self.variable_problem(name, message);
            }
        }
    }

    /// From now on the table at `path` may have `key`.
    fn know(&self, path: &str, key: &'static str) {
        let mut state = self.state.borrow_mut();
        state.known.entry(path.into()).or_default().insert(key);
    }

    /// The override `name` of what is at `path`, if there is one.
    fn overriding(&self, name: String, path: &str) -> Option<(Place, &str)> {
        let other = {
            let mut state = self.state.borrow_mut();
            let owner = state.variables.entry(name.clone());
            owner.or_insert_with(|| path.into()).clone()
        };
        let value = self.environment.get(&name)?;
        if other != path {
            // Names that differ in `-` and `_` only, or one that ends like another's table.
            let message = format!("could mean {other} or {path}: rename one of the endpoints");
            self.variable_problem(&name, message);
        }
        Some((Place::Variable(name), value))
    }

    fn line(&self, value: &Spanned<DeValue<'_>>) -> usize {
        line(self.text, value.span().start)
    }

    fn push(&self, path: &str, place: Option<&Place>, message: String) {
        let (line, key) = match place {
            Some(Place::Line(line)) => (Some(*line), path.to_owned()),
            // A name can hold anything but `=`, a line break too.
            Some(Place::Variable(name)) => (None, format!("environment {}", name.escape_debug())),
            None => (None, path.to_owned()),
        };
        let problem = Problem { line, key, message };
        let mut state = self.state.borrow_mut();
        // What several endpoints inherit is read several times.
        if !state.problems.contains(&problem) {
            state.problems.push(problem);
        }
    }

    /// Notes a value that is wrong by itself.
    fn wrong(&self, path: &str, place: &Place, message: String) {
        self.push(path, Some(place), message);
        self.state.borrow_mut().wrong.insert(path.into());
    }
}

fn line(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key = if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        units::quoted(key)
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// The candidate that `word` was probably meant to be.
fn closest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    let most = (length / 3).clamp(1, 3);
    candidates
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= most)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out, replaced or swapped with their neighbour to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// FNV-1a: the standard library's hasher may change with the compiler, and two builds of a relay must agree.
fn digest(values: &BTreeMap<String, String>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in values.iter().flat_map(|(name, value)| [name, value]) {
        // 0xff is in no UTF-8 text, so two texts can't be taken for two others.
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_a_short_way_from_what_was_meant() {
        let keys = ["url", "lease", "poll", "connect_timeout", "timeout"];
        let table = [
            ("ulr", Some("url")),
            ("urls", Some("url")),
            ("leese", Some("lease")),
            ("connection_timeout", Some("connect_timeout")),
            ("timeuot", Some("timeout")),
            ("batch", None),
            ("x", None),
            ("", None),
        ];
        for (word, want) in table {
            assert_eq!(closest(word, keys.into_iter()), want, "{word}");
        }
    }

    #[test]
    fn the_digest_is_the_same_for_every_build() {
        let values = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into()));
            digest(&pairs.collect())
        };
        assert_eq!(values(&[]), "cbf29ce484222325");
        assert_ne!(values(&[("a", "bc")]), values(&[("ab", "c")]));
        assert_eq!(values(&[("relay.lease", "15")]), "0de358c18756443e");
    }
}
