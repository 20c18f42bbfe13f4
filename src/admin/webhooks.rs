//! Webhooks of others that become messages.

use std::path::PathBuf;

use axum::http::HeaderName;

use super::signed::{Key, Scheme};
use crate::delivery::file::{Content, Watched};

/// A webhook of somebody else, as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Its name in the path.
    pub name: String,
    /// Of its messages.
    pub topic: String,
    /// Of its messages.
    pub kind: Option<String>,
    /// How it is signed.
    pub scheme: Scheme,
    /// Files with a secret a line; one that fits is enough.
    pub secret_files: Vec<PathBuf>,
    /// Where GitHub's signature stands.
    pub signature_header: HeaderName,
    /// Where the delivery's id stands, if not where the scheme has it.
    pub id_header: Option<HeaderName>,
    /// Headers that its messages keep.
    pub headers: Vec<HeaderName>,
}

/// The same, with its secrets.
pub(super) struct Hook {
    pub(super) config: Webhook,
    secrets: Vec<Watched<Vec<Key>>>,
}

impl Hook {
    /// Reads the files; the error names the one that can't be used.
    pub(super) fn new(config: &Webhook) -> Result<Hook, String> {
        let scheme = config.scheme;
        let watch = |path: &PathBuf| {
            let owner = format!("webhook {}", config.name);
            Watched::new(&owner, vec![path.clone()], move |contents| {
                secrets(scheme, &contents[0])
            })
        };
        Ok(Hook {
            config: config.clone(),
            secrets: config
                .secret_files
                .iter()
                .map(watch)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether one of its secrets passes.
    pub(super) fn any_key(&self, passes: impl Fn(&Key) -> bool) -> bool {
        self.secrets
            .iter()
            .any(|file| file.current().iter().any(&passes))
    }
}

/// A secret a line; empty lines and comments are left out.
fn secrets(scheme: Scheme, content: &Content) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(content.text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = Key::parse(scheme, line);
        keys.push(key.map_err(|error| content.wrong(format_args!("line {number}: {error}")))?);
    }
    if keys.is_empty() {
        return Err(content.wrong("holds no secret"));
    }
    Ok(keys)
}
