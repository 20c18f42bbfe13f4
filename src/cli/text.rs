//! How answers are written: for people, or as JSON.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use serde::Serialize;

use super::{Failure, written};

/// What a word means, for who sees colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// As it is to be.
    Green,
    /// Not yet.
    Yellow,
    /// Somebody has to look.
    Red,
}

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

/// Prints a line of a table; a terminal that is too narrow has the rest of it below, a little to the right, in as many lines as it
/// takes. The colour is for what stands at this column and after. Whether somebody still reads it.
pub(super) fn wrapped(head: &str, rest: &str, colour: Option<(usize, Colour)>) -> bool {
    let lines = broken(&flat(head), &flat(rest), width(), usize::MAX);
    painted(
        &lines,
        colour.map(|(from, colour)| (from, usize::MAX, colour)),
    )
}

/// The same; the rest has one line at most, and the colour is for what stands between these columns.
pub(super) fn row(head: &str, rest: &str, colour: Option<(usize, usize, Colour)>) -> bool {
    let lines = broken(&flat(head), &flat(rest), width(), 1);
    painted(&lines, colour)
}

/// Breaks the rest at blanks into lines of this width, the last of so many cut.
fn broken(head: &str, rest: &str, width: Option<usize>, most: usize) -> Vec<String> {
    let whole = format!("{head}{rest}");
    let whole = whole.trim_end();
    let Some(width) = width.filter(|width| whole.chars().count() > *width) else {
        return vec![whole.to_owned()];
    };
    let mut lines = vec![cut(head.trim_end(), width)];
    let mut left = rest.trim();
    // A row of words that is only long goes on below; one without a head begins at once.
    if head.is_empty() {
        lines.clear();
    }
    for line in 1.. {
        if left.is_empty() {
            break;
        }
        let room = width - 4;
        let ends = left.char_indices().nth(room).map(|(at, _)| at);
        let (now, later) = match ends {
            None => (left.to_owned(), ""),
            Some(_) if line >= most => (cut(left, room), ""),
            Some(end) => {
                let at = left[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
                (left[..at].to_owned(), left[at..].trim_start())
            }
        };
        lines.push(format!("    {}", now.trim_end()));
        left = later;
    }
    lines
}

/// Prints lines whose columns from the first to the second have a colour, if colours are seen.
fn painted(lines: &[String], colour: Option<(usize, usize, Colour)>) -> bool {
    let colour = colour.filter(|_| colours());
    lines.iter().enumerate().all(|(n, line)| {
        let line = tame(line);
        let text = match colour {
            // What was broken off is a piece of the last column.
            Some((_, usize::MAX, colour)) if n > 0 => paint(&line, 4, usize::MAX, colour),
            Some((from, to, colour)) if n == 0 => paint(&line, from, to, colour),
            _ => line,
        };
        written(format!("{text}\n").as_bytes())
    })
}

fn paint(line: &str, from: usize, to: usize, colour: Colour) -> String {
    let at = |column| {
        let place = line.char_indices().nth(column);
        place.map_or(line.len(), |(at, _)| at)
    };
    let (from, to) = (at(from), at(to));
    if from == to {
        return line.to_owned();
    }
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
    };
    format!(
        "{}\x1b[{code}m{}\x1b[0m{}",
        &line[..from],
        &line[from..to],
        &line[to..]
    )
}

/// Only a terminal sees them, and not where `NO_COLOR` says otherwise (<https://no-color.org>).
fn colours() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let dumb = set("TERM").is_none_or(|term| term == "dumb");
    stdout().is_terminal() && set("NO_COLOR").is_none() && !dumb
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

/// The same in one line.
pub(super) fn object<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value);
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
    fn what_does_not_fit_goes_on_below() {
        let fits = broken("a  ", "b", Some(20), 1);
        assert_eq!(fits, ["a  b"]);
        assert_eq!(broken("a  ", &"b ".repeat(20), None, 1).len(), 1);
        let cut = broken("head  ", "one two three four five six", Some(20), 1);
        assert_eq!(cut, ["head", "    one two three f…"]);
        let all = broken(
            "head  ",
            "one two three four five ünbroken-word",
            Some(20),
            9,
        );
        assert_eq!(
            all,
            [
                "head",
                "    one two three",
                "    four five",
                "    ünbroken-word"
            ]
        );
        assert_eq!(broken("", &"x".repeat(20), Some(16), 9).len(), 2);
    }

    #[test]
    fn colours_are_for_columns() {
        assert_eq!(paint("äb c", 1, 2, Colour::Red), "ä\x1b[31mb\x1b[0m c");
        assert_eq!(paint("ab", 2, usize::MAX, Colour::Green), "ab");
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
