//! A table as a getter sees it: the file's, overrides before it, and what it inherits behind it.

mod lists;

use std::{borrow::Cow, fmt::Display};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{PREFIX, Place, Reader, join};
use crate::config::units::quoted;

/// One table of the file (or none, where everything has its default), and those that it inherits from.
#[derive(Clone)]
pub(crate) struct Section<'r> {
    reader: &'r Reader<'r>,
    own: Layer<'r>,
    /// Where a key is looked for that the table itself does not have.
    inherited: Vec<Layer<'r>>,
    /// What its values are called in the digest; `None` = they are not part of it.
    id: Option<String>,
}

#[derive(Clone)]
struct Layer<'r> {
    table: Option<&'r DeTable<'r>>,
    line: Option<usize>,
    path: String,
    /// What its overrides begin with; `None` = it can't be overridden.
    prefix: Option<String>,
}

/// Which TOML values a getter takes.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    /// A text where a table may stand as well, which is left to another getter.
    Word,
    Whole,
    Real,
    Flag,
    /// A number with a unit; without one it is taken too, so that the parser can say what is missing.
    Amount,
}

pub(super) struct Kind<'k> {
    shape: Shape,
    /// With an article and an example, for messages.
    expected: &'k str,
    secret: bool,
}

// === impl Section ===

impl<'r> Section<'r> {
    /// The top of the file.
    pub(crate) fn root(reader: &'r Reader<'r>) -> Section<'r> {
        Section {
            reader,
            own: Layer {
                table: Some(&reader.root),
                line: None,
                path: String::new(),
                prefix: Some(PREFIX.into()),
            },
            inherited: Vec::new(),
            id: Some(String::new()),
        }
    }

    /// The table under `key`; an empty one where there is none.
    pub(crate) fn section(&self, key: &'static str) -> Section<'r> {
        let inner = |layer: &Layer<'r>| {
            let mut inner = Layer {
                table: None,
                line: layer.line,
                path: join(&layer.path, key),
                prefix: layer.variable(key).map(|variable| variable + "__"),
            };
            if let Some(value) = self.value(layer, key) {
                let line = self.reader.line(value);
                inner.line = Some(line);
                if let DeValue::Table(table) = value.get_ref() {
                    inner.table = Some(table);
                } else {
                    self.unexpected_secret(value, &inner.path, "a table");
                }
            }
            inner
        };
        Section {
            reader: self.reader,
            own: inner(&self.own),
            inherited: self.inherited.iter().map(inner).collect(),
            id: self.id.as_ref().map(|id| join(id, key)),
        }
    }

    /// The tables of the list under `key`, in order; none where it is absent, `None` where it is no list.
    pub(crate) fn sections(&self, key: &'static str) -> Option<Vec<Section<'r>>> {
        let path = join(&self.own.path, key);
        let expected = format!("a list of tables, each under [[{key}]]");
        let Some(value) = self.value(&self.own, key) else {
            return Some(Vec::new());
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.unexpected(value, &path, &expected);
            return None;
        };
        let mut sections = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let path = format!("{path}[{position}]");
            let DeValue::Table(table) = item.get_ref() else {
                self.unexpected(item, &path, &expected);
                continue;
            };
            sections.push(Section {
                reader: self.reader,
                id: self.id.as_ref().map(|_| path.clone()),
                own: Layer {
                    table: Some(table),
                    line: Some(self.reader.line(item)),
                    path,
                    prefix: None,
                },
                inherited: Vec::new(),
            });
        }
        Some(sections)
    }

    /// This entry of the list `list` under its own name, by which overrides and the digest know it.
    pub(crate) fn named(mut self, list: &str, name: &str) -> Section<'r> {
        let prefix = format!("{PREFIX}{list}__{name}__").replace('-', "_");
        self.own.prefix = Some(prefix.to_ascii_uppercase());
        self.id = Some(format!("{list}.{name}"));
        self
    }

    /// The same section, which takes what it does not have from `base`, key by key, and what that does not have from where
    /// it inherits itself.
    pub(crate) fn under(mut self, base: &Section<'r>) -> Section<'r> {
        self.inherited = base.layers().cloned().collect();
        self
    }

    /// The same section as it is for `name`: the digest knows its values by that as well.
    pub(crate) fn within(&self, name: &str) -> Section<'r> {
        Section {
            id: self.id.as_ref().map(|id| join(id, name)),
            ..self.clone()
        }
    }

    /// The same section without what it inherits.
    pub(crate) fn alone(&self) -> Section<'r> {
        Section {
            inherited: Vec::new(),
            ..self.clone()
        }
    }

    /// The same section, whose values do not count for the digest.
    pub(crate) fn aside(&self) -> Section<'r> {
        Section {
            id: None,
            ..self.clone()
        }
    }

    /// A list of texts that must be there; it can't be overridden.
    pub(crate) fn required_list(&self, key: &'static str, expected: &str) -> Option<Vec<String>> {
        let Some(value) = self.value(&self.own, key) else {
            self.problem(key, format!("is missing: expected {expected}"));
            return None;
        };
        let path = join(&self.own.path, key);
        self.found(&path, &Place::Line(self.reader.line(value)));
        let DeValue::Array(items) = value.get_ref() else {
            self.unexpected(value, &path, expected);
            return None;
        };
        let mut texts = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.unexpected(item, &path, expected),
            }
        }
        self.effective(key, texts.join("\n"));
        (texts.len() == items.len()).then_some(texts)
    }

    /// Whether this table is there, in the file or because something in it is overridden.
    pub(crate) fn given(&self) -> bool {
        self.own.given(self.reader)
    }

    /// Whether the table `key` of this one is.
    pub(crate) fn gives(&self, key: &str) -> bool {
        let layer = Layer {
            table: match self.own.table.and_then(|table| table.get(key)) {
                Some(value) => value.get_ref().as_table(),
                None => None,
            },
            prefix: self.own.variable(key).map(|variable| variable + "__"),
            ..self.own.clone()
        };
        layer.given(self.reader)
    }

    /// The table that this one inherits from.
    pub(crate) fn base(&self) -> Option<Section<'r>> {
        let own = self.inherited.first()?.clone();
        Some(Section {
            reader: self.reader,
            own,
            inherited: Vec::new(),
            id: None,
        })
    }

    /// Whether this section itself, in the file or by an override, has the key. To be asked after its getter.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// Whether the key's value, or one of those in its list, is wrong by itself. To be asked after its getter.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        let path = join(&self.own.path, key);
        let state = self.reader.state.borrow();
        let mut within = state
            .wrong
            .iter()
            .filter_map(|wrong| wrong.strip_prefix(&path));
        within.any(|rest| rest.is_empty() || rest.starts_with('['))
    }

    /// Whether the key's value comes from the environment. To be asked after its getter.
    pub(crate) fn overridden(&self, key: &str) -> bool {
        matches!(self.place(key), Some(Place::Variable(_)))
    }

    /// Notes a problem with a key of this section, or with its absence.
    pub(crate) fn problem(&self, key: &str, message: String) {
        let place = self.place(key).or(self.own.line.map(Place::Line));
        let path = join(&self.own.path, key);
        self.reader.push(&path, place.as_ref(), message);
    }

    /// Notes a problem where values that are right one by one do not fit together: at the first of the keys that is set
    /// here, or else where it is inherited. A value that is wrong by itself has its own problem, and is left alone.
    pub(crate) fn check(&self, keys: &[&str], holds: bool, message: impl FnOnce() -> String) {
        let paths: Vec<String> = self
            .layers()
            .flat_map(|layer| keys.iter().map(|key| join(&layer.path, key)))
            .collect();
        let place = {
            let state = self.reader.state.borrow();
            if holds || paths.iter().any(|path| state.wrong.contains(path)) {
                return;
            }
            let mut set = paths.iter().filter_map(|path| {
                let place = state.found.get(path)?;
                Some((path, place.clone()))
            });
            set.next()
        };
        if let Some((path, place)) = place {
            self.reader.push(path, Some(&place), message());
        }
    }

    /// The value of the first layer that has one. The others are read as well: what is wrong in a table is wrong
    /// whoever inherits it.
    pub(super) fn get<T>(
        &self,
        key: &'static str,
        kind: &Kind<'_>,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<T> {
        let mut first = None;
        for layer in self.layers() {
            let path = join(&layer.path, key);
            let value = self.value(layer, key);
            let variable = layer.variable(key);
            let overriding = variable.and_then(|name| self.reader.overriding(name, &path));
            let (place, read) = match (overriding, value) {
                (Some((place, text)), _) => (place, parse(text)),
                (None, Some(value)) if kind.leaves(value.get_ref()) => continue,
                (None, Some(value)) => (
                    Place::Line(self.reader.line(value)),
                    kind.text(value.get_ref()).and_then(|text| parse(&text)),
                ),
                (None, None) => continue,
            };
            self.found(&path, &place);
            let read = match read {
                Ok(value) => Some(value),
                Err(message) => {
                    self.reader.wrong(&path, &place, message);
                    None
                }
            };
            first.get_or_insert(read);
        }
        first.flatten()
    }

    fn layers(&self) -> impl Iterator<Item = &Layer<'r>> {
        [&self.own].into_iter().chain(&self.inherited)
    }

    /// What the file has under `key`, which is known from now on.
    fn value(&self, layer: &Layer<'r>, key: &'static str) -> Option<&'r Spanned<DeValue<'r>>> {
        self.reader.know(&layer.path, key);
        layer.table?.get(key)
    }

    fn found(&self, path: &str, place: &Place) {
        let mut state = self.reader.state.borrow_mut();
        state.found.insert(path.into(), place.clone());
    }

    fn place(&self, key: &str) -> Option<Place> {
        let path = join(&self.own.path, key);
        self.reader.state.borrow().found.get(&path).cloned()
    }

    /// Makes a value part of the digest, where its getter does not.
    pub(crate) fn effective(&self, key: &str, value: impl Display) {
        if let Some(id) = &self.id {
            let mut state = self.reader.state.borrow_mut();
            state.effective.insert(join(id, key), value.to_string());
        }
    }

    fn unexpected(&self, value: &Spanned<DeValue<'_>>, path: &str, expected: &str) {
        let place = Place::Line(self.reader.line(value));
        let found = describe(value.get_ref());
        self.reader
            .wrong(path, &place, format!("expected {expected}, found {found}"));
    }

    /// The same where a text may be a secret that stands in the wrong place.
    fn unexpected_secret(&self, value: &Spanned<DeValue<'_>>, path: &str, expected: &str) {
        if value.get_ref().is_str() {
            let place = Place::Line(self.reader.line(value));
            let message = format!("expected {expected}, found a text");
            self.reader.wrong(path, &place, message);
        } else {
            self.unexpected(value, path, expected);
        }
    }
}

// === impl Layer ===

impl Layer<'_> {
    /// The variable that overrides `key`.
    fn variable(&self, key: &str) -> Option<String> {
        let prefix = self.prefix.as_ref()?;
        Some(format!("{prefix}{}", key.to_ascii_uppercase()))
    }

    fn given(&self, reader: &Reader<'_>) -> bool {
        let mut names = reader.environment.keys();
        let prefix = self.prefix.as_ref();
        self.table.is_some() || prefix.is_some_and(|p| names.any(|name| name.starts_with(p)))
    }
}

// === impl Kind ===

impl<'k> Kind<'k> {
    pub(super) fn new(shape: Shape, expected: &'k str) -> Kind<'k> {
        Kind {
            shape,
            expected,
            secret: false,
        }
    }

    /// A text that is not shown.
    pub(super) fn secret(expected: &'k str) -> Kind<'k> {
        Kind {
            secret: true,
            ..Kind::new(Shape::Text, expected)
        }
    }

    /// Whether another getter reads the value.
    fn leaves(&self, value: &DeValue<'_>) -> bool {
        matches!(self.shape, Shape::Word) && value.is_table()
    }

    /// The value as the text that an override would have.
    fn text<'v>(&self, value: &'v DeValue<'_>) -> Result<Cow<'v, str>, String> {
        match value {
            DeValue::String(text)
                if matches!(self.shape, Shape::Text | Shape::Word | Shape::Amount) =>
            {
                Ok(Cow::Borrowed(text))
            }
            DeValue::Boolean(value) if matches!(self.shape, Shape::Flag) => {
                Ok(Cow::Borrowed(if *value { "true" } else { "false" }))
            }
            DeValue::Integer(number)
                if !matches!(self.shape, Shape::Text | Shape::Word | Shape::Flag) =>
            {
                // Decimal, whatever its radix in the file. One that does not fit stays as it is, and is out of any range.
                let decimal = i128::from_str_radix(number.as_str(), number.radix());
                Ok(decimal.map_or(number.as_str().into(), |number| number.to_string().into()))
            }
            DeValue::Float(number) if matches!(self.shape, Shape::Real | Shape::Amount) => {
                Ok(Cow::Borrowed(number.as_str()))
            }
            value => {
                let found = if self.secret {
                    format!("a value of type {}", value.type_str())
                } else {
                    describe(value)
                };
                Err(format!("expected {}, found {found}", self.expected))
            }
        }
    }
}

/// What a value is, for a message about its type.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {}", quoted(text)),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("the boolean {value}"),
        DeValue::Datetime(_) => "a date or time".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}
