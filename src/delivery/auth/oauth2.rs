//! Access tokens by OAuth 2.0 client credentials (RFC 6749, 4.4).
//!
//! Model: one token for each client, kept until shortly before it expires. Whoever finds it missing or old asks for a new
//! one under a lock; those that wait meanwhile take what came of it, a token or the failure, so an endpoint's sixty-four
//! requests ask once.
//!
//! A token can be revoked before it expires: a 401 drops it, and the request is sent again with a new one, once. A receiver
//! that refuses every token must not make us fetch one for each request, so this happens once a second at most.
//!
//! What the token's server says about us is no verdict on a row: its refusals are filed as a mistake in the configuration,
//! to be tried again, whatever the status.

use std::{path::PathBuf, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};

use super::secret;
use crate::{
    delivery::{classify, file::Watched},
    message::Class,
};

/// Renewed this much before it expires, or a fifth of its life before where that is less.
const MARGIN: Duration = Duration::from_secs(60);

/// After a failure a token that is still good is used for so long before the next try.
const PAUSE: Duration = Duration::from_secs(5);

/// Tokens that were refused are replaced no more often.
const REPLACED: Duration = Duration::from_secs(1);

/// A longer answer is no token.
const LONGEST: usize = 64 * 1024;

/// Where tokens come from, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The token endpoint.
    pub token_url: Url,
    /// The client's id.
    pub client_id: String,
    /// The file with its secret.
    pub client_secret_file: PathBuf,
    /// What the token is to be good for.
    pub scope: Option<String>,
    /// Whom it is for; some servers want to know.
    pub audience: Option<String>,
}

/// The token of one endpoint.
pub(in crate::delivery) struct Tokens {
    url: Url,
    /// Id and secret, as `Authorization` has them.
    client: Watched<HeaderValue>,
    form: String,
    /// Whether a proxy stands between.
    proxied: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// How many tokens there were so far.
    count: u64,
    failed: Option<(Instant, Failure)>,
    /// When a token that was refused was last replaced.
    replaced: Option<Instant>,
}

/// A token, and which one it is.
#[derive(Clone)]
pub(in crate::delivery) struct Token {
    pub(super) value: HeaderValue,
    pub(super) number: u64,
    renew: Option<Instant>,
    expires: Option<Instant>,
}

/// Why there is no token.
#[derive(Clone, Debug)]
pub(in crate::delivery) struct Failure {
    /// How the attempt is filed.
    pub(in crate::delivery) class: Class,
    /// What happened, without secrets.
    pub(in crate::delivery) text: String,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: Option<String>,
    /// A number; some servers write it as a text.
    expires_in: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

// === impl Tokens ===

impl Tokens {
    /// Reads the file with the secret; the error names it.
    pub(super) fn new(endpoint: &str, config: &Config, proxied: bool) -> Result<Tokens, String> {
        let mut form = "grant_type=client_credentials".to_owned();
        let fields = [("scope", &config.scope), ("audience", &config.audience)];
        for (name, value) in fields {
            if let Some(value) = value {
                form.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        let id = encoded(&config.client_id);
        let files = vec![config.client_secret_file.clone()];
        let client = Watched::new(endpoint, files, move |files| {
            let pair = format!("{id}:{}", encoded(files[0].line()?));
            secret(
                &files[0],
                &format!("Basic {}", BASE64_STANDARD.encode(pair)),
            )
        });
        Ok(Tokens {
            url: config.token_url.clone(),
            client: client.map_err(|error| format!("oauth2.client_secret_file: {error}"))?,
            form,
            proxied,
            state: Mutex::default(),
        })
    }

    /// The token to use now.
    pub(super) async fn current(&self, http: &reqwest::Client) -> Result<Token, Failure> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(token) = &state.token
            && token.renew.is_none_or(|renew| now < renew)
        {
            return Ok(token.clone());
        }
        let failure = match self.fetch_since(asked, &mut state, http).await {
            Ok(token) => return Ok(token),
            Err(failure) => failure,
        };
        match &mut state.token {
            Some(token) if token.expires.is_some_and(|expires| now < expires) => {
                tracing::warn!(error = %failure.text, "a token can't be renewed: the old one is still good");
                token.renew = Some(now + PAUSE);
                Ok(token.clone())
            }
            Some(_) | None => Err(failure),
        }
    }

    /// Another token than number `refused`; `None` if a new one would not help.
    pub(super) async fn replacement(
        &self,
        refused: u64,
        http: &reqwest::Client,
    ) -> Result<Option<Token>, Failure> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        match &state.token {
            Some(token) if token.number != refused => return Ok(Some(token.clone())),
            Some(_) | None => {}
        }
        let now = Instant::now();
        if state.replaced.is_some_and(|last| now < last + REPLACED) {
            return Ok(None);
        }
        state.token = None;
        state.replaced = Some(now);
        self.fetch_since(asked, &mut state, http).await.map(Some)
    }

    /// As if time had passed: the token should be renewed, or has expired.
    #[cfg(test)]
    pub(in crate::delivery) async fn age(&self, expired: bool) {
        let mut state = self.state.lock().await;
        let token = state.token.as_mut().unwrap();
        token.renew = Some(Instant::now());
        if expired {
            token.expires = token.renew;
        }
    }

    /// Asks for a token, unless somebody else's question that failed is younger than this one.
    async fn fetch_since(
        &self,
        asked: Instant,
        state: &mut State,
        http: &reqwest::Client,
    ) -> Result<Token, Failure> {
        if let Some((at, failure)) = &state.failed
            && *at >= asked
        {
            return Err(failure.clone());
        }
        let result = self.fetch(http).await;
        let now = Instant::now();
        match result {
            Ok((value, life)) => {
                state.count += 1;
                state.failed = None;
                let token = Token {
                    value,
                    number: state.count,
                    renew: life.map(|life| now + life.saturating_sub(MARGIN.min(life / 5))),
                    expires: life.map(|life| now + life),
                };
                state.token = Some(token.clone());
                Ok(token)
            }
            Err((class, text)) => {
                // Neither query nor credentials.
                let from = classify::location(&self.url, self.url.as_str().as_bytes());
                let text = format!("no access token from {from}: {text}");
                let failure = Failure { class, text };
                state.failed = Some((now, failure.clone()));
                Err(failure)
            }
        }
    }

    async fn fetch(
        &self,
        http: &reqwest::Client,
    ) -> Result<(HeaderValue, Option<Duration>), (Class, String)> {
        let request = http
            .post(self.url.clone())
            .header(AUTHORIZATION, HeaderValue::clone(&self.client.current()))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(self.form.clone());
        let response = request.send().await;
        let response = response.map_err(|error| classify::error(error, self.proxied))?;
        let status = response.status();
        let body = read(response, self.proxied).await?;
        if !status.is_success() {
            let class = match status.as_u16() {
                407 => Class::Proxy,
                408 | 425 | 429 | 500..=599 => Class::Unavailable,
                _ => Class::Misconfigured,
            };
            let mut text = format!("HTTP {status}");
            if let Ok(refused) = serde_json::from_slice::<Refused>(&body) {
                text.push_str(", ");
                // A word by the standard; whatever else it is, not all of it.
                text.extend(refused.error.chars().take(64));
            }
            return Err((class, text));
        }
        granted(&body).map_err(|text| (Class::Protocol, text.to_owned()))
    }
}

async fn read(mut response: Response, proxied: bool) -> Result<Vec<u8>, (Class, String)> {
    let mut body = Vec::new();
    let wrong = |error| classify::error(error, proxied);
    while let Some(chunk) = response.chunk().await.map_err(wrong)? {
        if body.len() + chunk.len() > LONGEST {
            return Err((Class::Protocol, "its answer is too long".into()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The token and its life; the error shows nothing of the answer.
pub(in crate::delivery) fn granted(
    body: &[u8],
) -> Result<(HeaderValue, Option<Duration>), &'static str> {
    let granted: Granted = serde_json::from_slice(body)
        .map_err(|_| "its answer is no JSON object with an access_token")?;
    let kind = granted.token_type.as_deref().unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err("its token is none of type Bearer");
    }
    let token = granted.access_token;
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its token is not made of visible ASCII characters");
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "its token can't be sent in a header")?;
    value.set_sensitive(true);
    let life = granted.expires_in.and_then(|life| match life {
        serde_json::Value::Number(life) => life.as_f64(),
        serde_json::Value::String(life) => life.parse().ok(),
        _ => None,
    });
    // A life that is no duration, or longer than one may be added to a clock, is none that anybody counts on.
    let life = life.and_then(|life| Duration::try_from_secs_f64(life).ok());
    Ok((
        value,
        life.filter(|life| *life < Duration::from_secs(u32::MAX.into())),
    ))
}

/// `application/x-www-form-urlencoded`, which RFC 6749 wants for id and secret as well.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"-._*".contains(&byte) => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::tests::decoded;

    #[test]
    fn answers_are_read_or_refused() {
        let life = |text: &str| {
            let json =
                format!(r#"{{"access_token":"t","token_type":"bearer","expires_in":{text}}}"#);
            granted(json.as_bytes()).unwrap().1
        };
        assert_eq!(life("3600"), Some(Duration::from_secs(3600)));
        assert_eq!(life(r#""60""#), Some(Duration::from_secs(60)));
        for text in ["null", "-1", "1e300", r#""soon""#, "[]"] {
            assert_eq!(life(text), None, "{text}");
        }
        let (value, life) = granted(br#"{"access_token":"a.b-c"}"#).unwrap();
        assert_eq!((value.to_str().unwrap(), life), ("Bearer a.b-c", None));
        assert!(value.is_sensitive());
        for (text, want) in [
            ("", "no JSON object"),
            ("s3cret", "no JSON object"),
            (r#"{"token":"s3cret"}"#, "no JSON object"),
            (
                r#"{"access_token":"s3cret","token_type":"mac"}"#,
                "none of type Bearer",
            ),
            (r#"{"access_token":""}"#, "visible ASCII"),
            (r#"{"access_token":"s3cret\r\nX: y"}"#, "visible ASCII"),
            (r#"{"access_token":"s3crét"}"#, "visible ASCII"),
        ] {
            let error = granted(text.as_bytes()).unwrap_err();
            assert!(error.contains(want) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        for (text, want) in [
            ("read write", "read+write"),
            ("a-b.c_d*1", "a-b.c_d*1"),
            ("~+&=%:/ä", "%7E%2B%26%3D%25%3A%2F%C3%A4"),
        ] {
            assert_eq!(encoded(text), want);
        }
    }

    proptest! {
        #[test]
        fn a_form_says_what_was_meant(text in any::<String>()) {
            let encoded = encoded(&text);
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._*%+".contains(c);
            prop_assert!(encoded.chars().all(legal), "{}", encoded);
            prop_assert_eq!(decoded(&encoded.replace('+', " ")), text);
        }
    }
}
