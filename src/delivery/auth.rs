//! Who we are to an endpoint: what goes into `Authorization`.
//!
//! Secrets come from files, so that they are neither in the configuration nor in the environment, and can be replaced
//! while the relay runs. A row can't set the header of an endpoint that has credentials.

pub mod oauth2;

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::header::HeaderValue;

use self::oauth2::{Failure, Token, Tokens};
use super::file::{Content, Watched};

/// Where the credentials of an endpoint come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Config {
    /// It wants none.
    #[default]
    None,
    /// A token in a file.
    Bearer {
        /// The file; blanks around the token don't count.
        file: PathBuf,
    },
    /// A user and a password.
    Basic {
        /// The user; without a colon.
        user: String,
        /// The file with the password; a line break behind it doesn't count.
        password_file: PathBuf,
    },
    /// A token that is asked for.
    OAuth2(oauth2::Config),
}

/// Gives the value of `Authorization`.
pub(super) enum Auth {
    None,
    File(Watched<HeaderValue>),
    Tokens(Box<Tokens>),
}

/// The header of a request.
pub(super) struct Authorization {
    /// Its value, where it has one.
    pub(super) value: Option<HeaderValue>,
    /// Which token it is; 0 where it is none that can be replaced.
    token: u64,
}

// === impl Auth ===

impl Auth {
    /// Reads the file; the error names it. `proxied`: tokens are asked for through a proxy.
    pub(super) fn new(endpoint: &str, config: &Config, proxied: bool) -> Result<Auth, String> {
        let watched = match config {
            Config::None => return Ok(Auth::None),
            Config::Bearer { file } => {
                Watched::new(endpoint, vec![file.clone()], |files| bearer(&files[0]))
                    .map_err(|error| format!("bearer_file: {error}"))?
            }
            Config::Basic {
                user,
                password_file,
            } => {
                let user = user.clone();
                Watched::new(endpoint, vec![password_file.clone()], move |files| {
                    basic(&user, &files[0])
                })
                .map_err(|error| format!("basic.password_file: {error}"))?
            }
            Config::OAuth2(config) => {
                return Ok(Auth::Tokens(Box::new(Tokens::new(
                    endpoint, config, proxied,
                )?)));
            }
        };
        Ok(Auth::File(watched))
    }

    /// Whether a token may have to be asked for.
    pub(super) fn asks(&self) -> bool {
        match self {
            Auth::None | Auth::File(_) => false,
            Auth::Tokens(_) => true,
        }
    }

    /// The header of a request that goes out now. A token is asked for through `http`, where there is none.
    pub(super) async fn authorization(
        &self,
        http: &reqwest::Client,
    ) -> Result<Authorization, Failure> {
        let fixed = |value| Authorization { value, token: 0 };
        match self {
            Auth::None => Ok(fixed(None)),
            Auth::File(file) => Ok(fixed(Some(HeaderValue::clone(&file.current())))),
            Auth::Tokens(tokens) => tokens.current(http).await.map(Authorization::from),
        }
    }

    /// What to try instead of one that was refused; `None` where there is nothing else.
    pub(super) async fn replacement(
        &self,
        refused: &Authorization,
        http: &reqwest::Client,
    ) -> Result<Option<Authorization>, Failure> {
        match self {
            Auth::None | Auth::File(_) => Ok(None),
            Auth::Tokens(tokens) => {
                let token = tokens.replacement(refused.token, http).await?;
                Ok(token.map(Authorization::from))
            }
        }
    }
}

// === impl Authorization ===

impl From<Token> for Authorization {
    fn from(token: Token) -> Authorization {
        Authorization {
            value: Some(token.value),
            token: token.number,
        }
    }
}

fn bearer(content: &Content) -> Result<HeaderValue, String> {
    secret(content, &format!("Bearer {}", content.word()?))
}

fn basic(user: &str, content: &Content) -> Result<HeaderValue, String> {
    let pair = format!("{user}:{}", content.line()?);
    secret(content, &format!("Basic {}", BASE64_STANDARD.encode(pair)))
}

/// A value that neither logs nor HTTP/2's table of headers keep.
pub(super) fn secret(content: &Content, text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text).ok().filter(|_| text.is_ascii());
    let mut value = value.ok_or_else(|| content.wrong("has more than visible ASCII characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::file::tests::Directory;

    fn authorization(config: &Config) -> Result<String, String> {
        let Auth::File(file) = Auth::new("test", config, false)? else {
            panic!("{config:?}")
        };
        let value = file.current();
        assert!(value.is_sensitive());
        Ok(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_in_the_file_becomes_the_header() {
        let directory = Directory::new();
        let bearer = |text: &str| {
            let file = directory.write("token", text);
            authorization(&Config::Bearer { file })
        };
        let basic = |text: &str| {
            let password_file = directory.write("password", text);
            let user = "Aladdin".into();
            authorization(&Config::Basic {
                user,
                password_file,
            })
        };
        assert_eq!(bearer(" abc.def-1==\r\n").unwrap(), "Bearer abc.def-1==");
        // RFC 7617.
        assert_eq!(
            basic("open sesame\n").unwrap(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
        assert_eq!(basic("käse:\r\n").unwrap(), "Basic QWxhZGRpbjprw6RzZTo=");
        for (wrong, want) in [
            (bearer(""), "bearer_file: /"),
            (bearer(" \n"), "/token: is empty"),
            (bearer("s3cret two"), "/token: holds more than one word"),
            (
                bearer("s3cret\u{e9}"),
                "/token: has more than visible ASCII",
            ),
            (basic("\n"), "basic.password_file: /"),
            (basic("\n"), "/password: is empty"),
            (
                basic("s3cret\ntwo\n"),
                "/password: holds more than one line",
            ),
        ] {
            let error = wrong.unwrap_err();
            assert!(error.contains(want) && !error.contains("s3cret"), "{error}");
        }
    }
}
