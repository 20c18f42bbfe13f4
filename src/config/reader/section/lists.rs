//! Getters for what holds several values: lists of texts, and tables whose keys are free.

use std::collections::{BTreeMap, btree_map::Entry};

use toml::de::DeValue;

use super::{Kind, Section, Shape};
use crate::config::{
    reader::{Place, join},
    units::quoted,
};

impl Section<'_> {
    /// What `parse` makes of each text of a list; `None` without the list. An override has them between commas.
    ///
    /// The first layer that has the list decides, the others are read as well. Values count for the digest by
    /// [`Section::list`] only.
    pub(crate) fn secrets<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.texts(key, &Kind::secret(expected), parse)
    }

    /// The same of texts that messages may show, and that count for the digest.
    pub(crate) fn list<T>(
        &self,
        key: &'static str,
        expected: &str,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let kind = Kind::new(Shape::Text, expected);
        let read = self.texts(key, &kind, |text| Ok((text.to_owned(), parse(text)?)));
        let (texts, values): (Vec<String>, Vec<T>) = read?.into_iter().unzip();
        self.effective(key, texts.join("\n"));
        Some(values)
    }

    /// What `parse` makes of each text of a table with free keys, in the order of the file; what is inherited stands
    /// behind. `same` tells which keys mean the same. No message shows a value. It can't be overridden.
    pub(crate) fn map<T>(
        &self,
        key: &'static str,
        expected: &str,
        same: impl Fn(&str, &str) -> bool,
        mut parse: impl FnMut(&str, &str) -> Result<T, String>,
    ) -> Vec<(String, T)> {
        let kind = Kind::secret(expected);
        let mut all: Vec<(String, T)> = Vec::new();
        for layer in self.layers() {
            let path = join(&layer.path, key);
            let Some(value) = self.value(layer, key) else {
                continue;
            };
            self.found(&path, &Place::Line(self.reader.line(value)));
            let DeValue::Table(table) = value.get_ref() else {
                self.unexpected_secret(value, &path, "a table of texts");
                continue;
            };
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(name, _)| name.span().start);
            let inherited = all.len();
            for (name, value) in entries {
                let path = join(&path, name.get_ref());
                let place = Place::Line(self.reader.line(value));
                let read = kind.text(value.get_ref()).and_then(|text| {
                    let value = parse(name.get_ref(), &text)?;
                    Ok((text.into_owned(), value))
                });
                match read {
                    Ok(_)
                        if all[..inherited]
                            .iter()
                            .any(|(own, _)| same(own, name.get_ref())) => {}
                    Ok(_) if all.iter().any(|(own, _)| same(own, name.get_ref())) => {
                        let message = "stands here twice, in another spelling".into();
                        self.reader.wrong(&path, &place, message);
                    }
                    Ok((text, value)) => {
                        self.effective(&join(key, name.get_ref()), text);
                        all.push((name.get_ref().to_string(), value));
                    }
                    Err(message) => self.reader.wrong(&path, &place, message),
                }
            }
        }
        all
    }

    fn texts<T>(
        &self,
        key: &'static str,
        kind: &Kind<'_>,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let mut first = None;
        for layer in self.layers() {
            let path = join(&layer.path, key);
            let value = self.value(layer, key);
            let variable = layer.variable(key);
            let overriding = variable.and_then(|name| self.reader.overriding(name, &path));
            let mut read = Vec::new();
            let mut one = |path: &str, place: &Place, value: Result<T, String>| match value {
                Ok(value) => read.push(value),
                Err(message) => self.reader.wrong(path, place, message),
            };
            match (overriding, value) {
                (Some((place, text)), _) => {
                    self.found(&path, &place);
                    let texts = text.split(',').map(str::trim);
                    for text in texts.filter(|text| !text.is_empty()) {
                        one(&path, &place, parse(text));
                    }
                }
                (None, Some(value)) => {
                    self.found(&path, &Place::Line(self.reader.line(value)));
                    let DeValue::Array(items) = value.get_ref() else {
                        self.unexpected_secret(
                            value,
                            &path,
                            &format!("a list of {}", kind.expected),
                        );
                        first.get_or_insert(read);
                        continue;
                    };
                    for (position, item) in items.iter().enumerate() {
                        let place = Place::Line(self.reader.line(item));
                        let value = kind.text(item.get_ref()).and_then(|text| parse(&text));
                        one(&format!("{path}[{position}]"), &place, value);
                    }
                }
                (None, None) => continue,
            }
            first.get_or_insert(read);
        }
        first
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
