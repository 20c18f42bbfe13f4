//! Who may ask for what: bearer tokens (RFC 6750), from files that are read again when they change.
//!
//! Who only sends messages can sign its requests instead, as Standard Webhooks has it: then nothing that is sent lets another one
//! send anything else.
//!
//! A line of a file is a name and a token, or a name and a secret; a name may have several. The name is the one that the history keeps for what its bearer does. Only digests of tokens
//! stay in memory, and digests are compared, so that the time that it takes tells nothing of a token.

use std::path::PathBuf;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
};
use sha2::{Digest, Sha256};

use super::{
    Config,
    api::Api,
    problem::Problem,
    signed::{self, Key, STALE, Scheme, Signed},
};
use crate::delivery::file::{Content, Watched};

/// A token shorter than this can be guessed.
const SHORTEST: usize = 16;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Read everything, payloads too.
    Reader,
    /// And change it.
    Operator,
    /// Send messages, and read what became of them.
    Writer,
}

/// All that are known.
pub(super) struct Callers {
    operators: Option<Watched<Vec<Known>>>,
    readers: Option<Watched<Vec<Known>>>,
    writers: Option<Watched<Vec<Known>>>,
    signers: Option<Watched<Vec<Signer>>>,
}

struct Known {
    name: String,
    digest: [u8; 32],
}

struct Signer {
    name: String,
    key: Key,
}

/// Somebody who may read.
pub(super) struct Reader;

/// Somebody who may know what became of a message: whether all of it may be read, or its state only.
pub(super) struct Knower {
    pub(super) reads: bool,
}

/// Somebody who may read, and asks who that is: the name, and `operator`, `reader` or `writer`.
pub(super) struct Caller(pub(super) String, pub(super) &'static str);

/// Somebody who may change things, by name.
pub(super) struct Operator(pub(super) String);

impl Callers {
    /// Reads the files; the error names the file and the line.
    pub(super) fn new(config: &Config) -> Result<Callers, String> {
        let watch = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| Watched::new("http", vec![path.clone()], read))
                .transpose()
        };
        let signers = config.signers_file.as_ref();
        let signers = signers.map(|path| Watched::new("http", vec![path.clone()], read_signers));
        Ok(Callers {
            operators: watch(&config.operators_file)?,
            readers: watch(&config.readers_file)?,
            writers: watch(&config.writers_file)?,
            signers: signers.transpose()?,
        })
    }

    /// Who sends this by a token, if it may send messages.
    pub(super) fn writer(&self, parts: &Parts) -> Result<String, Problem> {
        match self.of(parts)? {
            (Role::Operator | Role::Writer, name) => Ok(name),
            (Role::Reader, name) => Err(forbidden(format!("{name} may read, and change nothing"))),
        }
    }

    /// Who signed this just now, and under which id.
    pub(super) fn signer(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<(String, String), Problem> {
        let unknown = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
        // Standard Webhooks know no other header.
        let unused = HeaderName::from_static(signed::SIGNATURE);
        let signed = Signed::read(Scheme::StandardWebhooks, headers, &unused).map_err(unknown)?;
        if !signed.is_fresh(now) {
            return Err(unknown(STALE));
        }
        let known = self.signers.as_ref().map(Watched::current);
        let mut known = known.iter().flat_map(|known| known.iter());
        let found = known.find(|signer| signed.is_by(&signer.key, body));
        match (found, signed.id) {
            (Some(signer), Some(id)) => Ok((signer.name.clone(), id)),
            _ => Err(unknown("the signature is by no secret that is known")),
        }
    }

    fn of(&self, parts: &Parts) -> Result<(Role, String), Problem> {
        let unknown = |detail| Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
        let given = parts.headers.get(header::AUTHORIZATION);
        let given = given.and_then(|given| given.to_str().ok());
        let Some((scheme, token)) = given.and_then(|given| given.split_once(' ')) else {
            return unknown("a bearer token is needed: Authorization: Bearer …");
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return unknown("a bearer token is needed: Authorization: Bearer …");
        }
        let digest: [u8; 32] = Sha256::digest(token.trim()).into();
        for (role, known) in [
            (Role::Operator, &self.operators),
            (Role::Reader, &self.readers),
            (Role::Writer, &self.writers),
        ] {
            let known = known.as_ref().map(Watched::current);
            let found = known.iter().flat_map(|known| known.iter());
            if let Some(found) = found.into_iter().find(|known| known.digest == digest) {
                return Ok((role, found.name.clone()));
            }
        }
        unknown("this token is not known")
    }
}

impl FromRequestParts<Api> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Reader, Problem> {
        match api.callers.of(parts)? {
            (Role::Reader | Role::Operator, _) => Ok(Reader),
            (Role::Writer, name) => Err(forbidden(format!("{name} may send messages only"))),
        }
    }
}

impl FromRequestParts<Api> for Knower {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Knower, Problem> {
        let (role, _) = api.callers.of(parts)?;
        Ok(Knower {
            reads: role != Role::Writer,
        })
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Caller, Problem> {
        let (role, name) = api.callers.of(parts)?;
        let role = match role {
            Role::Operator => "operator",
            Role::Reader => "reader",
            Role::Writer => "writer",
        };
        Ok(Caller(name, role))
    }
}

impl FromRequestParts<Api> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Operator, Problem> {
        match api.callers.of(parts)? {
            (Role::Operator, name) => Ok(Operator(name)),
            (Role::Reader, name) => Err(forbidden(format!("{name} may read, and change nothing"))),
            (Role::Writer, name) => Err(forbidden(format!("{name} may send messages only"))),
        }
    }
}

fn forbidden(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, detail)
}

fn read_signers(contents: &[Content]) -> Result<Vec<Signer>, String> {
    let read = |name: &str, secret: &str| {
        let key = Key::parse(Scheme::StandardWebhooks, secret)?;
        Ok(Signer {
            name: name.to_owned(),
            key,
        })
    };
    lines(contents, "a secret", read)
}

fn read(contents: &[Content]) -> Result<Vec<Known>, String> {
    lines(contents, "a token", |name, token| {
        if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has 16 or more visible ASCII characters and no blanks");
        }
        Ok(Known {
            name: name.to_owned(),
            digest: Sha256::digest(token).into(),
        })
    })
}

/// What each line holds, a name and something that is secret.
fn lines<T>(
    contents: &[Content],
    what: &str,
    read: impl Fn(&str, &str) -> Result<T, &'static str>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for content in contents {
        for (n, line) in content.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| content.wrong(format!("line {}: {what}", n + 1));
            let Some((name, secret)) = line.split_once(char::is_whitespace) else {
                return Err(wrong(&format!(
                    "expected a name and {what}, with a blank between them"
                )));
            };
            all.push(read(name, secret.trim()).map_err(wrong)?);
        }
        if all.is_empty() {
            let what = what.trim_start_matches("a ");
            return Err(content.wrong(format_args!("there is no {what} in it")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<String>, String> {
        let content = Content {
            path: "/run/tokens".into(),
            text: text.into(),
        };
        read(&[content]).map(|all| all.into_iter().map(|known| known.name).collect())
    }

    #[test]
    fn a_line_is_a_name_and_a_token() {
        let good = "# who\n\nann  0123456789abcdef\nci\tABCDEFGHIJKLMNOP \n";
        assert_eq!(of(good), Ok(vec!["ann".into(), "ci".into()]));
        for (text, says) in [
            ("", "/run/tokens: there is no token in it"),
            (
                "0123456789abcdef",
                "/run/tokens: line 1: expected a name and a token",
            ),
            (
                "#\nann 0123456789abcde",
                "/run/tokens: line 2: a token has 16 or more",
            ),
            (
                "ann 0123456789 abcdef",
                "/run/tokens: line 1: a token has 16 or more",
            ),
        ] {
            let error = of(text).unwrap_err();
            assert!(
                error.starts_with(says) && !error.contains("0123"),
                "{error}"
            );
        }
    }
}
