//! Lists, and tables whose keys the user chooses. They come from the file only, whole: a list is inherited or replaced, never
//! mixed; of a table each key is inherited by itself.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::RangeBounds,
    time::Duration,
};

use toml::de::DeValue;

use super::{Place, getters::within, join, section::Section};
use crate::config::units::{self, quoted};

impl Section<'_> {
    /// A list of durations, at least one; `None` where there is none.
    pub(crate) fn durations(
        &self,
        key: &'static str,
        expected: &str,
        range: impl RangeBounds<Duration>,
    ) -> Option<Vec<Duration>> {
        let (layer, value) = self
            .layers()
            .find_map(|layer| Some((layer, self.value(layer, key)?)))?;
        let path = join(&layer.path, key);
        self.found(&path, &Place::Line(self.reader.line(value)));
        let items = match value.get_ref() {
            DeValue::Array(items) if !items.is_empty() => items,
            _ => {
                self.unexpected(value, &path, expected);
                return None;
            }
        };
        let mut durations = Vec::new();
        for item in items.iter() {
            let read = match item.get_ref().as_str() {
                Some(text) => units::duration(text)
                    .and_then(|delay| within(delay, text, &range, units::show_duration)),
                None => Err(format!("expected {expected}")),
            };
            match read {
                Ok(duration) => durations.push(duration),
                Err(message) => {
                    self.reader
                        .wrong(&path, &Place::Line(self.reader.line(item)), message);
                }
            }
        }
        self.effective(
            key,
            durations
                .iter()
                .map(|delay| delay.as_nanos().to_string())
                .collect::<Vec<_>>()
                .join(","),
        );
        (durations.len() == items.len()).then_some(durations)
    }

    /// A table whose keys `parse` understands: each with one of a few words. What is wrong is left out, and said.
    pub(crate) fn words<K: Ord, T: Copy>(
        &self,
        table: &'static str,
        of: &[(&str, T)],
        parse: impl Fn(&str) -> Result<K, String>,
    ) -> BTreeMap<K, T> {
        let words = of
            .iter()
            .map(|(word, _)| quoted(word))
            .collect::<Vec<_>>()
            .join(", ");
        let mut values = BTreeMap::new();
        let mut effective = BTreeMap::new();
        for layer in self.layers() {
            let Some(value) = self.value(layer, table) else {
                continue;
            };
            let path = join(&layer.path, table);
            self.found(&path, &Place::Line(self.reader.line(value)));
            let DeValue::Table(entries) = value.get_ref() else {
                self.unexpected(value, &path, "a table");
                continue;
            };
            for (name, entry) in entries {
                let name = name.get_ref();
                let place = Place::Line(self.reader.line(entry));
                let read = parse(name).and_then(|key| {
                    let text = entry.get_ref().as_str().unwrap_or("something else");
                    match of.iter().find(|(word, _)| *word == text) {
                        Some((word, value)) => Ok((key, *word, *value)),
                        None => Err(format!("expected one of {words}, found {}", quoted(text))),
                    }
                });
                match read {
                    Ok((key, word, value)) => {
                        if let Entry::Vacant(free) = values.entry(key) {
                            free.insert(value);
                            effective.insert(name.to_string(), word);
                        }
                    }
                    Err(message) => self.reader.wrong(&join(&path, name), &place, message),
                }
            }
        }
        self.effective(
            table,
            effective
                .iter()
                .map(|(name, word)| format!("{name}={word}"))
                .collect::<Vec<_>>()
                .join(","),
        );
        values
    }
}
