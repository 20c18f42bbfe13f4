//! What a connection string says, in libpq's words. The driver reads most of it; what it does not know, or knows less of than
//! libpq, is read here: whom to trust (`sslmode`, `sslrootcert`), what to show (`sslcert`, `sslkey`), whether the server must
//! be a primary (`target_session_attrs`), and when a silent peer is given up (`keepalives`, `tcp_user_timeout`).
//!
//! No message holds a value, for any of them may be a part of the password, where somebody forgot to encode it.

use std::{path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};

use super::{
    Config, Error,
    connect::explain,
    tls::{Authorities, Check, Trust},
};

/// The words that are read here.
const OURS: [&str; 11] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "target_session_attrs",
    "gssencmode",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    // In milliseconds, which the driver takes for seconds.
    "tcp_user_timeout",
];

/// Those that change nothing here: there is no GSSAPI and no compression, and the name of the host is always sent with TLS.
const IDLE: [&str; 4] = ["sslcompression", "sslsni", "krbsrvname", "gsslib"];

/// Those that lead to a file of libpq's.
const ELSEWHERE: [&str; 3] = ["passfile", "service", "servicefile"];

/// For one host to be connected to, where the string doesn't say.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How to connect.
#[derive(Clone, PartialEq)]
pub(super) struct Options {
    pub(super) postgres: tokio_postgres::Config,
    pub(super) trust: Trust,
    pub(super) server: Server,
}

/// What a server must be for a connection to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// Not asked: one of its kind, and the first transaction tells.
    Any,
    /// No standby.
    Primary,
    /// One whose transactions may write if they don't say so.
    ReadWrite,
}

/// Reads the connection string of a configuration.
pub(super) fn options(config: &Config) -> Result<Options, Error> {
    if misplaced_at(&config.url) {
        return Err(at());
    }
    let (rest, ours) = split(&config.url);
    let parsed = rest.parse::<tokio_postgres::Config>();
    let mut postgres = parsed.map_err(|error| Error::Config(mistake(&rest, &explain(&error))))?;
    let said = |key: &str| {
        let all = ours.iter().rev();
        let mut found = all.filter(|(name, _)| name == key);
        found.next().map(|(_, value)| value.as_str())
    };
    // A service often has the host, too.
    if let Some(word) = ELSEWHERE.into_iter().find(|word| said(word).is_some()) {
        return Err(Error::Config(format!(
            "{word} is not supported, for no file of libpq's is read: write the whole connection string, password included, into a \
             file of its own and name that as database.url_file"
        )));
    }
    if postgres.get_hosts().is_empty() && postgres.get_hostaddrs().is_empty() {
        return Err(Error::Config("it names no host".into()));
    }
    // In any form of a string: no host is called so.
    if postgres
        .get_hosts()
        .iter()
        .any(|host| matches!(host, Host::Tcp(name) if name.contains('@')))
    {
        return Err(at());
    }
    match said("gssencmode") {
        None | Some("disable" | "prefer") => {}
        Some("require") => {
            return Err(Error::Config(
                "gssencmode=require is not supported: there is no GSSAPI here; encrypt with TLS (sslmode=verify-full)"
                    .into(),
            ));
        }
        Some(_) => return Err(invalid("gssencmode")),
    }
    let server = match said("target_session_attrs") {
        // A relay can do nothing on a standby, so among several hosts it looks for the primary unasked.
        None | Some("any") if postgres.get_hosts().len() > 1 => Server::Primary,
        None | Some("any") => Server::Any,
        Some("primary") => Server::Primary,
        Some("read-write") => Server::ReadWrite,
        Some("read-only" | "standby" | "prefer-standby") => {
            return Err(Error::Config(
                "target_session_attrs must be any, primary or read-write: the outbox can be worked on at a primary only"
                    .into(),
            ));
        }
        Some(_) => return Err(invalid("target_session_attrs")),
    };
    // That is asked here, host by host, in our own words.
    postgres.target_session_attrs(TargetSessionAttrs::Any);
    let (mode, trust) = trust(config, said)?;
    postgres.ssl_mode(mode);
    let direct = postgres.get_ssl_negotiation() == SslNegotiation::Direct;
    complete(&mut postgres, said)?;
    Ok(Options {
        postgres,
        trust: Trust { direct, ..trust },
        server,
    })
}

/// What the parser says, without what may be a piece of the password.
///
/// A password that holds an `@`, a `&` or a blank ends there for the parser, which takes what follows for the name of a
/// parameter. So a name is shown only if it stands where no password can be.
fn mistake(url: &str, text: &str) -> String {
    let text = text.split_once(" but got ").map_or(text, |(text, _)| text);
    let Some((head, name)) = text.split_once("unknown option `") else {
        return text.to_owned();
    };
    let name = name.trim_end_matches('`');
    let open = match scheme(url) {
        Some(_) => url.rsplit_once('@').map_or(url, |(_, rest)| rest),
        None => url,
    };
    let open = open.split("password").next().unwrap_or_default();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.len() <= 40 && name.bytes().all(word) && open.contains(&format!("{name}=")) {
        format!("{head}unknown option `{name}`")
    } else {
        format!("{head}unknown option, not shown because it may be a piece of the password")
    }
}

/// What a connection of ours needs and most strings don't say.
fn complete<'a>(
    postgres: &mut tokio_postgres::Config,
    said: impl Fn(&str) -> Option<&'a str>,
) -> Result<(), Error> {
    if postgres.get_application_name().is_none() {
        postgres.application_name("outbox-relay");
    }
    if postgres.get_connect_timeout().is_none() {
        postgres.connect_timeout(CONNECT_TIMEOUT);
    }
    // A peer that vanished is noticed by the kernel, with statements under way or not. As with libpq it decides itself where
    // the string says 0 or less.
    let number = |key, ours: u32| match said(key).map(|value| value.trim().parse::<i32>()) {
        None => Ok(Some(ours)),
        Some(Ok(number)) => Ok(u32::try_from(number).ok().filter(|number| *number > 0)),
        Some(Err(_)) => Err(invalid(key)),
    };
    let seconds = |number: u32| Duration::from_secs(number.into());
    let on = said("keepalives").map(|value| value.trim().parse::<i32>());
    let on = on.unwrap_or(Ok(1)).map_err(|_| invalid("keepalives"))?;
    postgres.keepalives(on != 0);
    if let Some(idle) = number("keepalives_idle", 10)? {
        postgres.keepalives_idle(seconds(idle));
    }
    if let Some(interval) = number("keepalives_interval", 5)? {
        postgres.keepalives_interval(seconds(interval));
    }
    // The driver has a word of its own for it.
    let count = postgres.get_keepalives_retries().unwrap_or(3);
    if let Some(count) = number("keepalives_count", count)? {
        postgres.keepalives_retries(count);
    }
    if let Some(timeout) = number("tcp_user_timeout", 30_000)? {
        postgres.tcp_user_timeout(Duration::from_millis(timeout.into()));
    }
    Ok(())
}

/// `sslmode` and its files, as libpq understands them: an authority that is named is asked under `prefer` and `require`, too.
fn trust<'a>(
    config: &Config,
    said: impl Fn(&str) -> Option<&'a str>,
) -> Result<(SslMode, Trust), Error> {
    let named = |key| said(key).filter(|value| !value.is_empty());
    let system = named("sslrootcert") == Some("system");
    let in_url = named("sslrootcert").filter(|_| !system).map(PathBuf::from);
    let in_file = config.ca_file.clone();
    if (in_url.is_some() || system) && in_file.is_some() && in_url != in_file {
        return Err(Error::Config(
            "ca_file and sslrootcert name different authorities: only one of the two can be right"
                .into(),
        ));
    }
    let authorities = match in_url.or(in_file) {
        Some(file) => Authorities::File(file),
        None => Authorities::System,
    };
    let private = authorities != Authorities::System;
    let weak = match private {
        true => Check::Chain,
        false => Check::Nothing,
    };
    let default = if system { "verify-full" } else { "prefer" };
    let word = said("sslmode").unwrap_or(default);
    let (mode, check) = match word {
        "disable" => (SslMode::Disable, Check::Nothing),
        // The two differ in what is tried first; both end with what the server can do.
        "allow" | "prefer" => (SslMode::Prefer, weak),
        "require" => (SslMode::Require, weak),
        "verify-ca" => (SslMode::Require, Check::Chain),
        "verify-full" => (SslMode::Require, Check::Name),
        _ => return Err(invalid("sslmode")),
    };
    if system && word != "verify-full" {
        return Err(Error::Config(
            "sslrootcert=system needs sslmode=verify-full: everybody can have a certificate of a public authority".into(),
        ));
    }
    if word == "verify-ca" && !private {
        return Err(Error::Config(
            "sslmode=verify-ca needs an authority of your own (ca_file, or sslrootcert in the URL), for everybody can have a \
             certificate of a public one: name it, or say sslmode=verify-full"
                .into(),
        ));
    }
    let client = match (named("sslcert"), named("sslkey")) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(Error::Config(
                "sslcert and sslkey go together: the certificate that is shown, and its private key".into(),
            ));
        }
    };
    let trust = Trust {
        check,
        authorities,
        client,
        direct: false,
    };
    Ok((mode, trust))
}

/// Whether a URL has an `@` where it is read otherwise than it was meant, and a piece of the password would be taken for a host
/// or a database, which messages show.
fn misplaced_at(text: &str) -> bool {
    let Some(start) = scheme(text) else {
        return false;
    };
    let Some((credentials, rest)) = text[start..].split_once('@') else {
        return false;
    };
    let place = rest.split('?').next().unwrap_or_default();
    let in_query = |word| credentials.contains(word);
    place.contains('@') || in_query("?password=") || in_query("&password=")
}

fn at() -> Error {
    Error::Config(
        "a `@` stands where none can be: one that belongs to the user, the password or the database must be written %40 in a URL"
            .into(),
    )
}

fn invalid(key: &str) -> Error {
    // In the words of the driver.
    Error::Config(format!(
        "invalid connection string: invalid value for option `{key}`"
    ))
}

/// Takes our words out of a string. What makes no sense is left for the driver to judge.
fn split(text: &str) -> (String, Vec<(String, String)>) {
    match scheme(text) {
        Some(start) => split_url(text, start),
        None => split_pairs(text),
    }
}

/// Where a URL goes on after its scheme; so the driver tells the two forms apart.
fn scheme(text: &str) -> Option<usize> {
    let known = ["postgres://", "postgresql://"];
    let mut found = known.iter().filter(|scheme| text.starts_with(**scheme));
    found.next().map(|scheme| scheme.len())
}

fn is_ours(key: &str) -> bool {
    OURS.contains(&key) || IDLE.contains(&key) || ELSEWHERE.contains(&key)
}

fn split_url(text: &str, start: usize) -> (String, Vec<(String, String)>) {
    // The driver looks for the credentials first; a password may hold a question mark.
    let host = text[start..].find('@').map_or(start, |at| start + at + 1);
    let Some(query) = text[host..].find('?').map(|at| host + at) else {
        return (text.to_owned(), Vec::new());
    };
    let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut ours = Vec::new();
    let mut rest = Vec::new();
    for part in text[query + 1..].split('&') {
        match part
            .split_once('=')
            .map(|(key, value)| (decode(key), value))
        {
            Some((key, value)) if is_ours(&key) => ours.push((key, decode(value))),
            _ => rest.push(part),
        }
    }
    let mut kept = text[..query].to_owned();
    if !rest.is_empty() {
        kept.push('?');
        kept.push_str(&rest.join("&"));
    }
    (kept, ours)
}

fn split_pairs(text: &str) -> (String, Vec<(String, String)>) {
    let mut ours = Vec::new();
    let mut kept = String::new();
    let mut rest = text;
    while let Some((key, value, end)) = pair(rest) {
        if is_ours(key) {
            ours.push((key.to_owned(), value));
            kept.push(' ');
        } else {
            kept.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    kept.push_str(rest);
    (kept, ours)
}

/// The first `key = value` of a string, and where it ends.
fn pair(text: &str) -> Option<(&str, String, usize)> {
    let (key, after) = text.split_once('=')?;
    let value = after.trim_start();
    let quoted = value.starts_with('\'');
    let mut said = String::new();
    let mut letters = value.char_indices().skip(usize::from(quoted));
    let mut end = None;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => said.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => {
                end = Some(at + 1);
                break;
            }
            letter if !quoted && letter.is_whitespace() => {
                end = Some(at);
                break;
            }
            letter => said.push(letter),
        }
    }
    let end = match (end, quoted) {
        (Some(end), _) => end,
        (None, false) => value.len(),
        // It has no end.
        (None, true) => return None,
    };
    Some((key.trim(), said, text.len() - value.len() + end))
}

#[cfg(test)]
mod tests;
