//! The typed getters: one call reads a key, checks it, makes it known and part of the digest.

use std::{
    fmt::Display,
    ops::{Bound, RangeBounds},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use super::section::{Kind, Section, Shape};
use crate::config::units::{self, quoted};

impl Section<'_> {
    /// A whole number that may be missing.
    pub(crate) fn optional_count(
        &self,
        key: &'static str,
        expected: &str,
        range: impl RangeBounds<u32>,
    ) -> Option<u32> {
        let value = self.get(key, &Kind::new(Shape::Whole, expected), |text| {
            let number = text
                .parse()
                .map_err(|_| format!("expected {expected}, found {}", quoted(text)))?;
            within(number, text, &range, |number| number.to_string())
        });
        self.effective(
            key,
            value.map(|number| number.to_string()).unwrap_or_default(),
        );
        value
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, key: &'static str, default: bool) -> bool {
        let value = self.get(
            key,
            &Kind::new(Shape::Flag, "true or false"),
            |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(format!("expected true or false, found {}", quoted(text))),
            },
        );
        let value = value.unwrap_or(default);
        self.effective(key, value);
        value
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, key: &'static str, default: &str, of: &[(&str, T)]) -> T {
        let words: Vec<String> = of.iter().map(|(word, _)| quoted(word)).collect();
        let expected = words.join(" or ");
        let find = |text: &str| of.iter().find(|(word, _)| *word == text);
        let value = self.get(key, &Kind::new(Shape::Text, &expected), |text| {
            let wrong = || format!("expected {expected}, found {}", quoted(text));
            find(text).ok_or_else(wrong)
        });
        let (word, value) = value
            .or_else(|| find(default))
            .expect("the default is one of them");
        self.effective(key, word);
        *value
    }

    /// A duration, written as `units::duration` reads it.
    pub(crate) fn duration(
        &self,
        key: &'static str,
        default: Duration,
        range: impl RangeBounds<Duration>,
    ) -> Duration {
        let expected = format!("a duration such as {:?}", units::show_duration(default));
        let value = self.get(key, &Kind::new(Shape::Amount, &expected), |text| {
            within(units::duration(text)?, text, &range, units::show_duration)
        });
        let value = value.unwrap_or(default);
        self.effective(key, value.as_nanos());
        value
    }

    /// The same without a default; `example` is one.
    pub(crate) fn duration_if_any(
        &self,
        key: &'static str,
        example: Duration,
        range: impl RangeBounds<Duration>,
    ) -> Option<Duration> {
        let expected = format!("a duration such as {:?}", units::show_duration(example));
        let value = self.get(key, &Kind::new(Shape::Amount, &expected), |text| {
            within(units::duration(text)?, text, &range, units::show_duration)
        });
        let nanos = value.map(|value| value.as_nanos().to_string());
        self.effective(key, nanos.unwrap_or_default());
        value
    }

    /// A size in bytes, written as `units::size` reads it.
    pub(crate) fn size(
        &self,
        key: &'static str,
        default: usize,
        range: impl RangeBounds<usize>,
    ) -> usize {
        let expected = format!("a size such as {:?}", units::show_size(default));
        let value = self.get(key, &Kind::new(Shape::Amount, &expected), |text| {
            within(units::size(text)?, text, &range, units::show_size)
        });
        let value = value.unwrap_or(default);
        self.effective(key, value);
        value
    }

    /// The same without a default; `example` is one.
    pub(crate) fn size_if_any(
        &self,
        key: &'static str,
        example: usize,
        range: impl RangeBounds<usize>,
    ) -> Option<usize> {
        let expected = format!("a size such as {:?}", units::show_size(example));
        let value = self.get(key, &Kind::new(Shape::Amount, &expected), |text| {
            within(units::size(text)?, text, &range, units::show_size)
        });
        self.effective(
            key,
            value.map(|value| value.to_string()).unwrap_or_default(),
        );
        value
    }

    /// A whole number.
    pub(crate) fn count<T: Copy + Display + FromStr + PartialOrd>(
        &self,
        key: &'static str,
        default: T,
        range: impl RangeBounds<T>,
    ) -> T {
        let expected = format!("a whole number such as {default}");
        let show = |value: T| value.to_string();
        let value = self.get(key, &Kind::new(Shape::Whole, &expected), |text| {
            match text.parse() {
                Ok(value) => within(value, text, &range, show),
                // A whole number that T can't hold is out of any range.
                Err(_) if text.parse::<i128>().is_ok() => Err(out_of(text, &range, show)),
                Err(_) => Err(format!("expected {expected}, found {}", quoted(text))),
            }
        });
        let value = value.unwrap_or(default);
        self.effective(key, value);
        value
    }

    /// A number that need not be whole; a range with an end keeps out infinity, any range NaN.
    pub(crate) fn real(
        &self,
        key: &'static str,
        default: f64,
        range: impl RangeBounds<f64>,
    ) -> f64 {
        let expected = format!("a number such as {default:?}");
        let value = self.get(key, &Kind::new(Shape::Real, &expected), |text| {
            match text.parse() {
                Ok(value) => within(value, text, &range, |value| value.to_string()),
                Err(_) => Err(format!("expected {expected}, found {}", quoted(text))),
            }
        });
        let value = value.unwrap_or(default);
        self.effective(key, value);
        value
    }

    /// A text that is not empty and has no control characters; `expected` has an article and an example.
    pub(crate) fn text(&self, key: &'static str, expected: &str) -> Option<String> {
        let value = self.get(key, &Kind::new(Shape::Text, expected), |text| {
            if text.is_empty() || text.contains(char::is_control) {
                return Err(format!(
                    "must not be empty and have no control characters: expected {expected}"
                ));
            }
            Ok(text.to_owned())
        });
        self.effective(key, value.as_deref().unwrap_or_default());
        value
    }

    /// What `parse` makes of a text that no message shows (`parse` must not either) and the digest leaves out.
    pub(crate) fn secret<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.get(key, &Kind::secret(expected), parse)
    }

    /// The path of a file; `example` is one.
    pub(crate) fn path(&self, key: &'static str, example: &str) -> Option<PathBuf> {
        let expected = format!("a path such as {example:?}");
        self.text(key, &expected).map(PathBuf::from)
    }

    /// What `parse` makes of a text that may be missing.
    pub(crate) fn optional<T: Display>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(key, &Kind::new(Shape::Text, expected), parse);
        self.effective(key, value.as_ref().map(T::to_string).unwrap_or_default());
        value
    }

    /// What `parse` makes of a text that may be missing, under a key that may hold a table as well. It is not part of the
    /// digest.
    pub(crate) fn word<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.get(key, &Kind::new(Shape::Word, expected), parse)
    }

    /// What `parse` makes of a text that must be there.
    pub(crate) fn required<T: Display>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(key, &Kind::new(Shape::Text, expected), parse);
        if let Some(value) = &value {
            self.effective(key, value);
        } else if !self.has(key) {
            self.problem(key, format!("is missing: expected {expected}"));
        }
        value
    }
}

fn within<T: Copy + PartialOrd>(
    value: T,
    text: &str,
    range: &impl RangeBounds<T>,
    show: impl Fn(T) -> String,
) -> Result<T, String> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(out_of(text, range, show))
    }
}

fn out_of<T: Copy>(text: &str, range: &impl RangeBounds<T>, show: impl Fn(T) -> String) -> String {
    let bounds = match (range.start_bound(), range.end_bound()) {
        (Bound::Included(low), Bound::Included(high)) => {
            format!("from {} to {}", show(*low), show(*high))
        }
        (Bound::Included(low), _) => format!("at least {}", show(*low)),
        (_, Bound::Included(high)) => format!("at most {}", show(*high)),
        _ => "another value".into(),
    };
    // A number needs no quotes and holds no secret.
    let found = match text.parse::<f64>() {
        Ok(_) => text.to_owned(),
        Err(_) => quoted(text),
    };
    format!("must be {bounds}, found {found}")
}
