//! Takes what a receiver sends back of a request's secrets out of what is stored or logged: pure.
//!
//! A receiver that quotes what it got seldom quotes it as it was: a JSON library writes `/` as `\/` and `=` as `\u003d`, a
//! redirect has it percent-encoded, and Basic's pair is shown decoded. So each character of a secret is recognised in any
//! of these forms. Only texts of some kB come here, after all that an answer means has been read from it: a secret may be
//! anything, `10023` or `"results"` too, and must not change that.

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::header::HeaderValue;

use super::{EXCERPT, classify};
use crate::{message::Outcome, saga};

/// What stands in a secret's place.
pub(super) const INSTEAD: &str = "[redacted]";

/// Bytes of a secret at least, and of what is left of one that is cut off: fewer stand in texts by chance.
const SHORTEST: usize = 4;

/// Bytes of a word at least, of a secret with several, that is a secret by itself: shorter ones may be anybody's.
const WORD: usize = 8;

/// Backslashes before one character at most: three where a JSON text stands in a string of another.
const ESCAPES: usize = 3;

/// Knows the secrets of one request.
pub(super) struct Redactor {
    secrets: Vec<String>,
    /// Which bytes a secret can begin with, in any form: most places in a text are passed over by this alone.
    starts: [bool; 256],
}

// === impl Redactor ===

impl Redactor {
    /// One that hides these values of headers.
    pub(super) fn new(values: &[HeaderValue]) -> Redactor {
        let mut secrets = Vec::new();
        for value in values {
            add(&mut secrets, &String::from_utf8_lossy(value.as_bytes()));
        }
        secrets.sort_unstable();
        secrets.dedup();
        let mut starts = [false; 256];
        let plain = secrets.iter().filter_map(|secret| secret.bytes().next());
        for byte in plain.chain(*b"\\%") {
            starts[usize::from(byte)] = true;
        }
        Redactor { secrets, starts }
    }

    /// Hides them in all the text that an outcome has, which keeps its limits.
    pub(super) fn clean(&self, outcome: &mut Outcome) {
        if self.secrets.is_empty() {
            return;
        }
        outcome.error = (outcome.error.take()).map(|error| classify::line(&self.hide(error)));
        outcome.response = outcome.response.take().map(|response| {
            let mut response = self.hide(response);
            response.truncate(response.floor_char_boundary(EXCERPT));
            response
        });
        // What another participant gets is JSON, or nothing.
        outcome.output = outcome.output.take().and_then(|output| {
            let hidden = self.hide(output.to_string());
            saga::output(hidden.as_bytes()).map(Into::into)
        });
    }

    /// Replaces each place where a secret stands, and an end of the text that one may have been cut off by.
    pub(super) fn hide(&self, text: String) -> String {
        if self.secrets.is_empty() {
            return text;
        }
        let bytes = text.as_bytes();
        let mut out = String::new();
        // All before is in `out`, or hidden.
        let mut done = 0;
        for (at, byte) in text.bytes().enumerate() {
            if !self.starts[usize::from(byte)] {
                continue;
            }
            let ends = self.secrets.iter().filter_map(|s| end(bytes, at, s));
            match ends.max() {
                // Two that overlap are one: the rest of the second would be left.
                Some(end) if at < done => done = done.max(end),
                Some(end) => {
                    out.push_str(&text[done..at]);
                    out.push_str(INSTEAD);
                    done = end;
                }
                None => {}
            }
        }
        if done == 0 {
            return text;
        }
        out.push_str(&text[done..]);
        out
    }
}

/// What is secret in the value of a header.
fn add(secrets: &mut Vec<String>, value: &str) {
    let mut add = |secret: &str| {
        // Blanks around it have no part in it. Without them a secret can begin with few bytes only.
        let secret = secret.trim();
        if secret.len() >= SHORTEST {
            secrets.push(secret.to_owned());
        }
    };
    let (scheme, rest) = value.trim().split_once([' ', '\t']).unwrap_or_default();
    let basic = scheme.eq_ignore_ascii_case("basic");
    // These words are no secret, and tell what it was that came back.
    if !basic && !scheme.eq_ignore_ascii_case("bearer") {
        add(value);
    }
    // What follows a scheme that we do not know.
    add(rest);
    value
        .split_ascii_whitespace()
        .filter(|word| word.len() >= WORD)
        .for_each(&mut add);
    if basic
        && let Ok(pair) = BASE64_STANDARD.decode(rest.trim())
        && let Ok(pair) = String::from_utf8(pair)
    {
        add(&pair);
        add(pair.split_once(':').map_or("", |(_, password)| password));
    }
}

/// Where the secret ends that begins at `at`: the end of the text, if that has cut it off.
fn end(text: &[u8], at: usize, secret: &str) -> Option<usize> {
    // There may be several, since a backslash or a percent sign can be its own or that of a form.
    let mut ends = vec![at];
    let mut next = Vec::new();
    for (seen, c) in secret.char_indices() {
        if seen >= SHORTEST && ends.contains(&text.len()) {
            return Some(text.len());
        }
        for at in ends.drain(..) {
            step(text, at, c, &mut next);
        }
        if next.is_empty() {
            return None;
        }
        next.sort_unstable();
        next.dedup();
        std::mem::swap(&mut ends, &mut next);
    }
    ends.into_iter().max()
}

/// Adds where this character of a secret ends that begins at `at`, in each form in which it stands there.
fn step(text: &[u8], at: usize, c: char, ends: &mut Vec<usize>) {
    let mut buffer = [0; 4];
    let plain = c.encode_utf8(&mut buffer).as_bytes();
    let rest = &text[at..];
    match rest.first() {
        // A form of HTML has `+` for it, and what keeps an error in one line makes a blank of a tab.
        Some(b' ' | b'\t' | b'+') if matches!(c, ' ' | '\t') => ends.push(at + 1),
        Some(b'%') => {
            let form: String = plain.iter().map(|byte| format!("%{byte:02x}")).collect();
            ends.extend(begins(rest, &form).map(|length| at + length));
        }
        Some(_) | None => {}
    }
    if rest.starts_with(plain) {
        ends.push(at + plain.len());
    }
    for escapes in 1..=ESCAPES {
        if rest.get(escapes - 1) != Some(&b'\\') {
            break;
        }
        let escaped = &rest[escapes..];
        let at = at + escapes;
        if escaped.starts_with(plain) {
            ends.push(at + plain.len());
        }
        if let None | Some(b'u') = escaped.first() {
            let form = format!("u{:04x}", u32::from(c));
            ends.extend(begins(escaped, &form).map(|length| at + length));
        }
    }
}

/// How many bytes of a text are this form, whose letters may be of either case: all, if its end has cut the form off.
fn begins(text: &[u8], form: &str) -> Option<usize> {
    let length = form.len().min(text.len());
    let same = text[..length].eq_ignore_ascii_case(&form.as_bytes()[..length]);
    same.then_some(length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::message::Class;

    fn redactor(values: &[&str]) -> Redactor {
        let values: Vec<HeaderValue> = values.iter().map(|value| value.parse().unwrap()).collect();
        Redactor::new(&values)
    }

    fn hidden(values: &[&str], text: &str) -> String {
        redactor(values).hide(text.to_owned())
    }

    #[test]
    fn what_comes_back_of_a_secret_is_hidden() {
        let values = ["Bearer t0ken-t0ken", "s3cret", "s3cret"];
        for (text, want) in [
            ("nothing of it", "nothing of it"),
            ("", ""),
            (
                r#"{"authorization":"Bearer t0ken-t0ken","x":"s3cret s3crets3cret"}"#,
                r#"{"authorization":"Bearer [redacted]","x":"[redacted] [redacted][redacted]"}"#,
            ),
            // Cut off where the excerpt ends.
            ("ä t0ken-t0", "ä [redacted]"),
            ("ä t0ke", "ä [redacted]"),
            ("t0k", "t0k"),
            ("t0ken-t0 ä", "t0ken-t0 ä"),
            (r"t0ken\u002", "[redacted]"),
            (r"t0ken\", "[redacted]"),
            ("t0ken%2", "[redacted]"),
        ] {
            assert_eq!(hidden(&values, text), want);
        }
        assert_eq!(hidden(&["ab", "abc"], "abc ab"), "abc ab", "too short");
        // Of two that overlap nothing is left.
        assert_eq!(hidden(&["abcd", "bcdefgh"], "-abcdefgh-"), "-[redacted]-");
    }

    #[test]
    fn it_is_known_in_other_forms() {
        let token = "sk/live/AAAA+BBBB==";
        for text in [
            token,
            r"sk\/live\/AAAA+BBBB==",
            r"sk\\\/live\\\/AAAA+BBBB==",
            r"sk/live/AAAA+BBBB\u003d\u003d",
            r"sk\u002flive\u002FAAAA\u002bBBBB\\u003D=",
            "sk%2Flive%2fAAAA%2BBBBB%3D%3D",
        ] {
            let text = format!("<{text}>");
            for value in [token, &format!("Bearer {token}"), &format!("Key {token}")] {
                let got = hidden(&[value], &text);
                assert_eq!(got, "<[redacted]>", "{value}");
            }
        }
        let odd = r#"a\\"b%41"#;
        for text in [odd, r#"a\\\\\"b%41"#, "a%5c%5C%22b%2541"] {
            assert_eq!(hidden(&[odd], &format!("<{text}>")), "<[redacted]>");
        }
    }

    #[test]
    fn a_secret_with_blanks_is_hidden_whole_and_by_its_long_words() {
        let hidden = |text: &str| hidden(&["open sesame-seed no\tmore"], text);
        for text in [
            "open sesame-seed no\tmore",
            "open sesame-seed no more",
            "open+sesame-seed+no%09more",
            "open%20sesame-seed%20no+more",
            r"open\u0020sesame-seed no\u0009more",
        ] {
            assert_eq!(hidden(&format!("<{text}>")), "<[redacted]>");
        }
        assert_eq!(hidden("open the sesame-seed"), "open the [redacted]");
        assert_eq!(hidden("no more, open"), "no more, [redacted]");
    }

    #[test]
    fn the_pair_of_basic_is_hidden_as_it_is_and_decoded() {
        let pair = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        let hidden = |value: &str, text: &str| hidden(&[value], text);
        let ours = pair("Aladdin:open/käse");
        assert_eq!(hidden(&ours, &ours), "Basic [redacted]");
        for (text, want) in [
            ("Aladdin:open/käse!", "[redacted]!"),
            ("Aladdin, not open/käse!", "Aladdin, not [redacted]!"),
            (r"open\/k\u00e4se!", "[redacted]!"),
            ("open%2Fk%C3%A4se!", "[redacted]!"),
        ] {
            assert_eq!(hidden(&ours, text), want);
        }
        assert_eq!(hidden(&pair("me:abc"), "me:abc abc"), "[redacted] abc");
        assert_eq!(hidden("basic ****", "**** me"), "[redacted] me");
    }

    #[test]
    fn limits_hold_for_what_is_longer_afterwards() {
        let mut outcome = Outcome {
            class: Class::Unavailable,
            status: Some(503),
            error: Some("abcd".repeat(256)),
            response: Some("abcd".repeat(EXCERPT / 4)),
            retry_after: None,
            duration: Duration::ZERO,
            exchange: None,
            output: None,
            poll: None,
        };
        redactor(&["abcd"]).clean(&mut outcome);
        let (error, response) = (outcome.error.unwrap(), outcome.response.unwrap());
        assert_eq!((error.len(), response.len()), (1024, EXCERPT));
        assert!(!error.contains("abcd") && !response.contains("abcd"));
    }

    /// A character of a secret in one of its forms.
    fn form(c: char, form: u8) -> String {
        let code = u32::from(c);
        match form {
            0 if !c.is_ascii_alphanumeric() => format!("\\{c}"),
            1 => format!("\\u{code:04x}"),
            2 => format!("\\u{code:04X}"),
            3 => format!("%{code:02x}"),
            4 => format!("%{code:02X}"),
            5 if c == ' ' => "+".to_owned(),
            _ => c.to_string(),
        }
    }

    proptest! {
        #[test]
        fn no_form_and_no_cut_is_missed(
            secret in "[!-~][ -~]{2,20}[!-~]", forms in prop::collection::vec(0..8u8, 22), cut in 4..22usize
        ) {
            prop_assume!(!["basic", "bearer"].iter().any(|scheme| secret.to_lowercase().starts_with(scheme)));
            let forms = secret.chars().zip(forms).map(|(c, n)| form(c, n));
            let forms: Vec<String> = forms.collect();
            let got = hidden(&[&secret], &format!("ä{}ä", forms.concat()));
            prop_assert_eq!(got, "ä[redacted]ä");
            let got = hidden(&[&secret], &format!("ä{}", forms[..cut.min(forms.len())].concat()));
            prop_assert_eq!(got, "ä[redacted]");
        }

        #[test]
        fn any_text_is_survived(secret in "[a\\\\%u0-2]{4,8}", text in "[a\\\\%u0-2ä\u{FFFD}]{0,60}") {
            let got = hidden(&[&secret], &text);
            prop_assert!(!got.contains(&secret), "{}", got);
        }
    }
}
