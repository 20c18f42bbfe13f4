//! Who may ask for what: bearer tokens (RFC 6750), from files that are read again when they change.
//!
//! A line of a file is a name and a token. The name is the one that the history keeps for what its bearer does. Only digests of tokens
//! stay in memory, and digests are compared, so that the time that it takes tells nothing of a token.

use std::path::PathBuf;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
};
use sha2::{Digest, Sha256};

use super::{api::Api, problem::Problem};
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
}

/// All that are known.
pub(super) struct Callers {
    operators: Option<Watched<Vec<Known>>>,
    readers: Option<Watched<Vec<Known>>>,
}

struct Known {
    name: String,
    digest: [u8; 32],
}

/// Somebody who may read.
pub(super) struct Reader;

/// Somebody who may read, and asks who that is: the name, and `operator` or `reader`.
pub(super) struct Caller(pub(super) String, pub(super) &'static str);

/// Somebody who may change things, by name.
pub(super) struct Operator(pub(super) String);

impl Callers {
    /// Reads the files; the error names the file and the line.
    pub(super) fn new(
        operators: Option<&PathBuf>,
        readers: Option<&PathBuf>,
    ) -> Result<Callers, String> {
        let watch = |path: Option<&PathBuf>| {
            path.map(|path| Watched::new("http", vec![path.clone()], read))
                .transpose()
        };
        Ok(Callers {
            operators: watch(operators)?,
            readers: watch(readers)?,
        })
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
        api.callers.of(parts).map(|_| Reader)
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Caller, Problem> {
        let (role, name) = api.callers.of(parts)?;
        let role = match role {
            Role::Operator => "operator",
            Role::Reader => "reader",
        };
        Ok(Caller(name, role))
    }
}

impl FromRequestParts<Api> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Operator, Problem> {
        match api.callers.of(parts)? {
            (Role::Operator, name) => Ok(Operator(name)),
            (Role::Reader, name) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("{name} may read, and change nothing"),
            )),
        }
    }
}

fn read(contents: &[Content]) -> Result<Vec<Known>, String> {
    let mut all = Vec::new();
    for content in contents {
        for (n, line) in content.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| content.wrong(format!("line {}: {what}", n + 1));
            let Some((name, token)) = line.split_once(char::is_whitespace) else {
                return Err(wrong(
                    "expected a name and a token, with a blank between them",
                ));
            };
            let token = token.trim();
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong(
                    "a token has 16 or more visible ASCII characters and no blanks",
                ));
            }
            all.push(Known {
                name: name.to_owned(),
                digest: Sha256::digest(token).into(),
            });
        }
        if all.is_empty() {
            return Err(content.wrong("there is no token in it"));
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
