//! What an answer or a failure means: pure.
//!
//! Operators and policies see classes, so each failure has to land in one and say in one line what happened. A failure is
//! recognised by the errors it is made of (kinds and types, not words) as far as the libraries show them. What nothing
//! tells apart is a connection that broke: retried, and blamed on nobody.
//!
//! All text here goes to logs and to the database: no line break, no NUL, and nothing of the endpoint's URL but, after a
//! redirect, the address it names: path and host without query and credentials, which often hold a secret.

use std::{
    error::Error,
    io,
    time::{Duration, SystemTime},
};

use reqwest::Url;
use rustix::io::Errno;

use super::guard::Refused;
use crate::message::Class;

/// Bytes of an error's text that are kept at most.
const LINE: usize = 1024;

/// The class of a whole answer, by the default policy.
pub(super) fn status(code: u16) -> Class {
    match code {
        200..=299 => Class::Success,
        300..=399 => Class::Redirect,
        401 | 403 | 404 => Class::Misconfigured,
        407 => Class::Proxy,
        410 => Class::Gone,
        400 | 405 | 406 | 411 | 413 | 414 | 415 | 417 | 421 | 422 | 426 | 431 | 451 => {
            Class::Rejected
        }
        // 408, 409, 423, 425, 429 among them, and what has no rule: a number that nobody knows must not kill a row.
        400..=599 => Class::Unavailable,
        _ => Class::Protocol,
    }
}

/// The class of a request that got no whole answer, perhaps through a proxy, and what happened, in one line.
pub(super) fn error(error: reqwest::Error, proxied: bool) -> (Class, String) {
    let https = error.url().is_some_and(|url| url.scheme() == "https");
    let class = if proxied && blames_proxy(&error, https) {
        Class::Proxy
    } else {
        class(&error, https)
    };
    (class, line(&chain(&error.without_url())))
}

/// Whether the connection broke before the whole answer was there.
pub(super) fn is_reset(error: &reqwest::Error) -> bool {
    class(error, false) == Class::Reset
}

/// One line of at most 1 KiB that can be logged and stored.
pub(super) fn line(text: &str) -> String {
    let mut line = text.replace('\0', "\u{FFFD}").replace(
        |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
        " ",
    );
    line.truncate(line.floor_char_boundary(LINE));
    line
}

/// Where a redirect points to.
pub(super) fn location(base: &Url, value: &[u8]) -> String {
    let Ok(url) = base.join(&String::from_utf8_lossy(value)) else {
        return "not a URL".into();
    };
    match url.scheme() {
        "http" | "https" => {
            let query = if url.query().is_some() { "?…" } else { "" };
            format!(
                "{}{}{query}",
                url.origin().ascii_serialization(),
                url.path()
            )
        }
        scheme => format!("a {scheme} URL"),
    }
}

/// The delay that a `Retry-After` asks for: seconds, or a date in any of HTTP's three forms.
///
/// A date means nothing without a "now", and the only one that belongs to it is the answer's own `Date`: our clock may
/// differ from the receiver's by more than the delay. Without a `Date`, a date is ignored.
pub(super) fn retry_after(value: &[u8], date: Option<&[u8]>) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too large for a number is still a number: as late as can be. The policy has a cap.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let until = http_date(value)?;
    let now = http_date(date?)?;
    Some(until.duration_since(now).unwrap_or_default())
}

fn http_date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

fn class(error: &reqwest::Error, https: bool) -> Class {
    let causes = || causes(error);
    let tls = causes().any(|cause| cause.is::<rustls::Error>());
    let io = || causes().filter_map(|cause| cause.downcast_ref::<io::Error>().map(io::Error::kind));
    if causes().any(|cause| cause.is::<Refused>()) {
        // Before the next, for it is a resolver that refuses.
        Class::Misconfigured
    } else if lack(error).is_some() {
        // Before the next, for a look-up needs a descriptor, too.
        Class::Exhausted
    } else if error.is_dns() {
        Class::Dns
    } else if tls {
        Class::Tls
    } else if error.is_connect() || error.is_builder() {
        // Connecting to TCP is refused, never cut; what is cut while connecting is a handshake.
        let cut = io().any(|kind| {
            matches!(
                kind,
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
            )
        });
        if error.is_timeout() {
            Class::ConnectTimeout
        } else if https && cut {
            Class::Tls
        } else {
            Class::Connect
        }
    } else if causes().any(|cause| {
        cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_parse)
    }) || io().any(|kind| {
        // How hyper reports a length of a chunk that is none.
        matches!(
            kind,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData
        )
    }) {
        Class::Protocol
    } else if error.is_timeout() && io().all(|kind| kind != io::ErrorKind::TimedOut) {
        Class::Timeout
    } else {
        // Reset, cut, cancelled before it was sent, or given up by the kernel because nobody acknowledged.
        Class::Reset
    }
}

/// What this host lacks for a connection, if that is why there is none.
pub(super) fn exhaustion(error: &reqwest::Error) -> Option<String> {
    lack(error).map(|errno| io::Error::from(errno).to_string())
}

fn lack(error: &reqwest::Error) -> Option<Errno> {
    causes(error).find_map(lacking)
}

/// Not `EADDRNOTAVAIL`: that may be the address.
fn lacking(cause: &(dyn Error + 'static)) -> Option<Errno> {
    let code = cause.downcast_ref::<io::Error>()?.raw_os_error()?;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let errno = Errno::from_raw_os_error(code);
    lacks.contains(&errno).then_some(errno)
}

/// Whether a request through a proxy failed on its way to that.
fn blames_proxy(error: &reqwest::Error, https: bool) -> bool {
    // The type of a tunnel's errors is not public; this is how they begin.
    let tunnel = || {
        causes(error)
            .map(ToString::to_string)
            .find(|text| text.starts_with("tunnel error: "))
    };
    // Without a tunnel nothing is connected to but the proxy.
    error.is_connect()
        && (!https || tunnel().is_some_and(|text| text != "tunnel error: unsuccessful"))
}

/// The error and what it is made of, from the outside in.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| {
        // An io::Error that wraps another answers with that one's source, not with that one.
        match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        // An inner one says nothing new, and might name the URL.
        if cause.is::<reqwest::Error>() {
            continue;
        }
        let next = cause.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_status_has_its_class() {
        let rejected = [
            400, 405, 406, 411, 413, 414, 415, 417, 421, 422, 426, 431, 451,
        ];
        for code in 100..=999 {
            let want = match code {
                code if rejected.contains(&code) => Class::Rejected,
                401 | 403 | 404 => Class::Misconfigured,
                407 => Class::Proxy,
                410 => Class::Gone,
                code => match code / 100 {
                    2 => Class::Success,
                    3 => Class::Redirect,
                    4 | 5 => Class::Unavailable,
                    _ => Class::Protocol,
                },
            };
            assert_eq!(status(code), want, "{code}");
        }
        for code in [408, 409, 423, 425, 429, 500, 502, 503, 504, 507, 599] {
            assert_eq!(status(code), Class::Unavailable, "{code}");
        }
        for code in [0, 99, 1000, u16::MAX] {
            assert_eq!(status(code), Class::Protocol, "{code}");
        }
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let seconds = |n| Some(Duration::from_secs(n));
        let table = [
            ("0", seconds(0)),
            ("120", seconds(120)),
            ("0007", seconds(7)),
            ("9999999999999", seconds(9_999_999_999_999)),
            ("18446744073709551615", seconds(u64::MAX)),
            ("18446744073709551616", Some(Duration::MAX)),
            ("99999999999999999999999999999999", Some(Duration::MAX)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", seconds(120)),
            ("Sunday, 06-Nov-94 08:51:37 GMT", seconds(120)),
            ("Sun Nov  6 08:51:37 1994", seconds(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", seconds(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", seconds(0)),
            ("Sun, 06 Nov 1994 25:49:37 GMT", None),
            ("Mon, 06 Nov 1994 08:51:37 GMT", None),
            ("Sun, 06 Nov 1994 08:51:37 +0100", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e30", None),
            ("1 ", None),
            ("0x10", None),
            ("١٢", None),
            ("soon", None),
        ];
        for (value, want) in table {
            let found = retry_after(value.as_bytes(), Some(date.as_bytes()));
            assert_eq!(found, want, "{value:?}");
        }
        assert_eq!(retry_after(b"\xff", Some(date.as_bytes())), None);
    }

    #[test]
    fn a_date_without_the_answers_date_is_ignored() {
        let value = b"Sun, 06 Nov 1994 08:51:37 GMT";
        assert_eq!(retry_after(value, None), None);
        assert_eq!(retry_after(value, Some(b"yesterday")), None);
        assert_eq!(retry_after(b"5", None), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_location_shows_no_secret() {
        let base = Url::parse("https://user:pass@a.example/hook?token=1").unwrap();
        let table: [(&[u8], &str); 8] = [
            (b"/login", "https://a.example/login"),
            (b"?token=2", "https://a.example/hook?…"),
            (b"//b.example:8443/x", "https://b.example:8443/x"),
            (b"http://u:p@c.example/y?t=3#f", "http://c.example/y?…"),
            (b"http://[::1", "not a URL"),
            (b"javascript:alert(1)", "a javascript URL"),
            (b"/caf\xe9\0x\r\n", "https://a.example/caf%EF%BF%BD%00x"),
            (b"", "https://a.example/hook?…"),
        ];
        for (value, want) in table {
            assert_eq!(location(&base, value), want, "{value:?}");
        }
    }

    #[test]
    fn a_line_can_be_stored_and_is_one() {
        assert_eq!(line("a\r\nb\0c\u{85}d\u{2028}e\tf"), "a  b\u{FFFD}c d e f");
        let long = line(&"€".repeat(1000));
        assert_eq!(long, "€".repeat(LINE / 3));
    }

    #[test]
    fn what_this_host_lacks_is_not_the_endpoints_fault() {
        for (code, want) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, true),
            (Errno::CONNREFUSED, false),
            (Errno::ADDRNOTAVAIL, false),
        ] {
            let error = io::Error::from_raw_os_error(code.raw_os_error());
            assert_eq!(lacking(&error).is_some(), want, "{error}");
        }
    }

    #[test]
    fn an_error_within_an_io_error_is_seen() {
        let inner = rustls::Error::General("x".into());
        let outer = io::Error::new(io::ErrorKind::InvalidData, inner);
        assert!(causes(&outer).any(|cause| cause.is::<rustls::Error>()));
    }

    proptest! {
        #[test]
        fn retry_after_survives_anything(
            value in any::<Vec<u8>>(), date in any::<Option<Vec<u8>>>(),
        ) {
            retry_after(&value, date.as_deref());
        }

        #[test]
        fn retry_after_survives_near_misses(
            value in "[A-Z][a-z]{2,8},? [0-9]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{0,5} [0-9]{2}:[0-9]{2}:[0-9]{2}( [0-9]{4}| GMT)?",
            cut in 0_usize..40,
        ) {
            let value = &value.as_bytes()[..cut.min(value.len())];
            retry_after(value, Some(b"Sun, 06 Nov 1994 08:49:37 GMT"));
        }

        #[test]
        fn digits_are_a_delay_and_the_rest_is_none(value in "[0-9]{1,60}") {
            prop_assert!(retry_after(value.as_bytes(), None).is_some());
            for sign in ["-", "+", " ", "."] {
                prop_assert_eq!(retry_after(format!("{sign}{value}").as_bytes(), None), None);
            }
        }

        #[test]
        fn seconds_and_dates_mean_what_was_written(delay in 0_u64..4_000_000_000, now in 0_u64..200_000_000_000, zeros in 0_usize..30) {
            let written = format!("{}{delay}", "0".repeat(zeros));
            let wanted = Some(Duration::from_secs(delay));
            prop_assert_eq!(retry_after(written.as_bytes(), None), wanted);
            let date = |seconds| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            let (now, until) = (date(now), date(now + delay));
            prop_assert_eq!(retry_after(until.as_bytes(), Some(now.as_bytes())), wanted, "{} {}", now, until);
            // What is over already is no delay.
            let over = retry_after(now.as_bytes(), Some(until.as_bytes()));
            prop_assert_eq!(over, Some(Duration::ZERO));
        }

        #[test]
        fn a_line_is_always_short_and_one(text in any::<String>(), times in 1_usize..200) {
            let line = line(&text.repeat(times));
            prop_assert!(line.len() <= LINE);
            prop_assert!(!line.contains(['\0', '\n', '\r']));
        }
    }
}
