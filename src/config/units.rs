//! Durations and sizes as people write them.
//!
//! Strict on purpose: a number without a unit means seconds to one reader and milliseconds to the next, so it is an error
//! that says what to add, and a unit stands at most once, the larger before the smaller.

use std::time::Duration;

/// Longer durations are typing errors, and would overflow the arithmetic of clocks and intervals: a hundred years.
pub(crate) const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// Milliseconds per unit, the largest first.
const DURATIONS: [(&str, u64); 5] = [
    ("d", 24 * 60 * 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("m", 60 * 1000),
    ("s", 1000),
    ("ms", 1),
];

/// Bytes per unit; the first that divides a size is the one it is shown in.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads `200ms`, `15s`, `5m`, `1h30m`, `3d`; whole numbers only, at most [`LONGEST`].
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if is_number(text) {
        return Err(format!(
            "{text} has no unit: add one of ms, s, m, h, d, as in \"{text}s\""
        ));
    }
    let too_long = || format!("{} is longer than {}", quoted(text), show_duration(LONGEST));
    let mut total: u64 = 0;
    let mut units = DURATIONS.as_slice();
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let (number, tail) = split(rest, |c| c.is_ascii_digit());
        let (unit, tail) = split(tail, |c| c.is_ascii_alphabetic());
        let position = units.iter().position(|(name, _)| *name == unit);
        let (Some(position), false) = (position, number.is_empty()) else {
            return Err(format!(
                "expected a duration such as \"200ms\", \"15s\" or \"1h30m\", found {}",
                quoted(text)
            ));
        };
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(units[position].1))
            .and_then(|part| total.checked_add(part))
            .ok_or_else(too_long)?;
        units = &units[position + 1..];
        rest = tail;
    }
    let duration = Duration::from_millis(total);
    if duration > LONGEST {
        return Err(too_long());
    }
    Ok(duration)
}

/// Writes a duration as [`duration`] reads it; what is finer than a millisecond is left out.
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut shown = String::new();
    for (unit, milliseconds) in DURATIONS {
        let milliseconds = u128::from(milliseconds);
        // Days only where nothing smaller follows: "36h" is what was written more often than "1d12h".
        if rest >= milliseconds && (unit != "d" || rest.is_multiple_of(milliseconds)) {
            shown += &format!("{}{unit}", rest / milliseconds);
            rest %= milliseconds;
        }
    }
    if shown.is_empty() {
        shown += "0s";
    }
    shown
}

/// Reads `64MiB`, `500kB` or a plain number of bytes.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text, |c| c.is_ascii_digit());
    let factor = match unit {
        "" => Some(1),
        unit => SIZES
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, bytes)| *bytes),
    };
    let (Some(factor), false) = (factor, number.is_empty()) else {
        return Err(format!(
            "expected a size such as \"64MiB\", \"500kB\" or a number of bytes, found {}",
            quoted(text)
        ));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("{} is more than this machine can address", quoted(text)))
}

/// Writes a size as [`size`] reads it.
pub(crate) fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    SIZES
        .iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(
            || bytes.to_string(),
            |(unit, factor)| format!("{}{unit}", bytes / factor),
        )
}

/// Requests in a time, such as `100/s`, `600/m` or `0.5/s`, as requests per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!(
            r#"expected a rate such as "100/s" or "600/m", found {}"#,
            quoted(text)
        )
    };
    let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let per_second = number / seconds;
    if (1e-4..=1e6).contains(&per_second) {
        Ok(per_second)
    } else {
        Err(wrong())
    }
}

/// A value as an error may show it: not if it is long or may be a URL or connection string, which can hold a password.
pub(crate) fn quoted(text: &str) -> String {
    let length = text.chars().count();
    if length > 40 || text.contains("://") || text.contains(['@', '=']) {
        format!("a text of {length} characters")
    } else {
        format!("{text:?}")
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && text.parse::<f64>().is_ok()
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_or_refused() {
        let table = [
            ("200ms", Ok(200)),
            ("15s", Ok(15_000)),
            ("5m", Ok(300_000)),
            ("1h", Ok(3_600_000)),
            ("3d", Ok(259_200_000)),
            ("1h30m", Ok(5_400_000)),
            ("1m500ms", Ok(60_500)),
            ("0s", Ok(0)),
            ("36500d", Ok(3_153_600_000_000)),
            ("15", Err("15 has no unit: add one of ms, s, m, h, d")),
            ("1.5", Err("1.5 has no unit")),
            ("-5", Err("-5 has no unit")),
            ("0", Err("0 has no unit")),
            ("", Err("found \"\"")),
            ("s", Err("found \"s\"")),
            ("1.5s", Err("expected a duration such as")),
            ("-5s", Err("expected a duration")),
            ("15 s", Err("expected a duration")),
            (" 15s", Err("expected a duration")),
            ("15sec", Err("expected a duration")),
            ("15S", Err("expected a duration")),
            ("30m1h", Err("expected a duration")),
            ("1h1h", Err("expected a duration")),
            ("1h30", Err("expected a duration")),
            ("infinity", Err("expected a duration")),
            ("٣s", Err("expected a duration")),
            ("36501d", Err("\"36501d\" is longer than 36500d")),
            ("99999999999999999999d", Err("longer than 36500d")),
            ("18446744073709551615ms", Err("longer than 36500d")),
        ];
        for (text, want) in table {
            match (duration(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, Duration::from_millis(want), "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, wanted {want:?}"),
            }
        }
    }

    #[test]
    fn sizes_are_read_or_refused() {
        let table = [
            ("64MiB", Ok(64 << 20)),
            ("10KiB", Ok(10 << 10)),
            ("1GiB", Ok(1 << 30)),
            ("500kB", Ok(500_000)),
            ("64MB", Ok(64_000_000)),
            ("1GB", Ok(1_000_000_000)),
            ("12B", Ok(12)),
            ("4096", Ok(4096)),
            ("0", Ok(0)),
            ("", Err("expected a size such as")),
            ("MiB", Err("expected a size")),
            ("64mb", Err("expected a size")),
            ("64 MiB", Err("expected a size")),
            ("1.5GiB", Err("expected a size")),
            ("-1", Err("expected a size")),
            ("99999999999GiB", Err("more than this machine can address")),
            (
                "99999999999999999999",
                Err("more than this machine can address"),
            ),
        ];
        for (text, want) in table {
            match (size(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, wanted {want:?}"),
            }
        }
    }

    #[test]
    fn what_may_hold_a_password_is_not_shown() {
        for text in ["postgres://u:pw@h/db", "u:pw@h", "password=pw"] {
            assert!(!quoted(text).contains("pw"), "{text}");
        }
        assert_eq!(quoted("15 s"), "\"15 s\"");
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read(milliseconds in 0_u64..3_153_600_000_000, bytes in any::<u32>()) {
            let length = Duration::from_millis(milliseconds);
            prop_assert_eq!(duration(&show_duration(length)), Ok(length));
            let bytes = bytes as usize;
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,12}", amount in "[0-9]{0,22}[a-zA-Z]{0,3}") {
            for text in [text, amount] {
                // A text is a duration or a size, never both: bytes and minutes can't be confused.
                prop_assert!(duration(&text).is_err() || size(&text).is_err());
            }
        }
    }
}
