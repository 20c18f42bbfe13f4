//! Credentials: one kind at most, and an endpoint's own takes the place of an inherited one.

use std::path::PathBuf;

use reqwest::Url;

use crate::{
    config::reader::Section,
    delivery::auth::{Config, oauth2},
};

const KINDS: [&str; 3] = ["bearer_file", "basic", "oauth2"];

/// An endpoint that is `whole` must have all that its kind needs; `[defaults]` may hold a part.
pub(super) fn auth(endpoint: &Section<'_>, whole: bool) -> Config {
    let bearer = endpoint.path("bearer_file", "/run/secrets/token");
    let basic = endpoint.section("basic");
    let user = basic.optional("user", r#"a user such as "relay""#, user);
    let password = basic.path("password_file", "/run/secrets/password");

    let tokens = endpoint.section("oauth2");
    let token_url = tokens.optional(
        "token_url",
        r#"a URL such as "https://auth/token""#,
        super::plain_url,
    );
    let client_id = tokens.text("client_id", r#"an id such as "relay""#);
    let client_secret_file = tokens.path("client_secret_file", "/run/secrets/client");
    let scope = tokens.text("scope", r#"scopes such as "orders:write""#);
    let audience = tokens.text("audience", r#"an audience such as "https://api""#);

    let base = endpoint.base();
    let kind = kind(endpoint).or_else(|| base.as_ref().and_then(kind));
    match kind {
        Some("bearer_file") => bearer.map(|file| Config::Bearer { file }),
        Some("basic") => {
            need(&basic, whole, &["user", "password_file"]);
            user.zip(password)
                .map(|(user, password_file)| Config::Basic {
                    user,
                    password_file,
                })
        }
        Some("oauth2") => {
            let needed = ["token_url", "client_id", "client_secret_file"];
            need(&tokens, whole, &needed);
            oauth(token_url, client_id, client_secret_file).map(|config| {
                Config::OAuth2(oauth2::Config {
                    scope,
                    audience,
                    ..config
                })
            })
        }
        Some(_) | None => None,
    }
    .unwrap_or_default()
}

fn oauth(
    token_url: Option<Url>,
    client_id: Option<String>,
    client_secret_file: Option<PathBuf>,
) -> Option<oauth2::Config> {
    Some(oauth2::Config {
        token_url: token_url?,
        client_id: client_id?,
        client_secret_file: client_secret_file?,
        scope: None,
        audience: None,
    })
}

/// The kind that stands in this table itself.
fn kind(section: &Section<'_>) -> Option<&'static str> {
    let here = |key: &&str| section.has(key) || section.gives(key);
    let mut here = KINDS.into_iter().filter(|key| here(key));
    let first = here.next()?;
    if let Some(second) = here.next() {
        let message = format!("stands beside {first}: an endpoint has one kind of credentials");
        section.problem(second, message);
    }
    Some(first)
}

/// What is set nowhere, not even wrongly.
fn need(section: &Section<'_>, whole: bool, keys: &[&str]) {
    let base = section.base();
    for key in keys {
        let set = section.has(key) || base.as_ref().is_some_and(|base| base.has(key));
        if whole && !set {
            let all = keys.join(" and ");
            section.problem(key, format!("is missing: {all} are needed together"));
        }
    }
}

fn user(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.contains(char::is_control) {
        return Err("must not be empty and have neither colons nor control characters".into());
    }
    Ok(text.to_owned())
}
