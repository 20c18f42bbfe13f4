//! How answers are written: for people, or as JSON.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use serde::Serialize;

use super::Failure;

/// A duration for people: its two largest units.
pub(super) fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let mut left = duration.as_secs();
    let mut parts = Vec::new();
    for (unit, length) in [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)] {
        if left >= length {
            parts.push(format!("{}{unit}", left / length));
            left %= length;
        }
    }
    parts.truncate(2);
    parts.join("")
}

/// Seconds for people.
pub(super) fn age(seconds: f64) -> String {
    show(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// Cuts on a character boundary.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// Line breaks and other controls are blanks.
pub(super) fn flat(text: &str) -> String {
    text.replace(|c: char| c.is_control() || turns(c), " ")
}

/// Turns what follows around: a line could be read as another one.
fn turns(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// What whoever wrote a payload or answered a request put into it must not move the cursor of who reads it.
pub(super) fn tame(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n' || turns(c), " ")
}

/// A line, cut to the width of the terminal if it goes to one.
pub(super) fn line(text: &str) -> String {
    let text = flat(text);
    let text = text.trim_end();
    match width() {
        Some(width) => cut(text, width),
        None => text.to_owned(),
    }
}

/// A time of the database in UTC, for people: without its year and the parts of a second.
pub(super) fn moment(text: &str) -> String {
    match text.get(5..19) {
        Some(moment) if text.get(10..11) == Some("T") => moment.replace('T', " "),
        _ => text.to_owned(),
    }
}

/// As JSON, for programs.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::Other(error.to_string()))?;
    Ok(escaped(&text))
}

/// JSON that means the same without the controls that it may have within strings.
pub(super) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text
}

/// A word that a shell takes as it is.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width >= 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (millis, want) in [
            (0, "0ms"),
            (250, "250ms"),
            (1000, "1s"),
            (61_000, "1m1s"),
            (3_600_000, "1h"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), want);
        }
    }

    #[test]
    fn long_names_are_cut_on_a_character() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }

    #[test]
    fn moments_are_short_and_what_is_none_stays() {
        assert_eq!(moment("2026-11-30T03:05:58.123456+00:00"), "11-30 03:05:58");
        assert_eq!(moment("infinity"), "infinity");
        assert_eq!(moment("2026-11-30"), "2026-11-30");
    }

    #[test]
    fn nothing_that_moves_a_cursor_is_printed() {
        assert_eq!(line("a\nb\u{1b}[2Jc\t"), "a b [2Jc");
        assert_eq!(tame("a\nb\u{1b}\u{9b}\r"), "a\nb   ");
        assert_eq!(escaped("{\"a\": \"\u{9b}ä\"}"), "{\"a\": \"\\u009bä\"}");
    }

    #[test]
    fn a_shell_takes_what_is_quoted_as_it_is() {
        assert_eq!(quoted("[\"it's; $(id)\"]"), "'[\"it'\\''s; $(id)\"]'");
    }
}
