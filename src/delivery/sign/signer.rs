//! Where the secrets and the time of a signature come from.

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderMap;
use uuid::Uuid;

use super::{Config, Secret, add};
use crate::delivery::file::{Content, Watched};

/// Signs the requests of one endpoint.
pub(in crate::delivery) struct Signer {
    secrets: Vec<Secret>,
    /// Each by itself, so that one that is broken does not keep the others from being renewed.
    files: Vec<Watched<Vec<Secret>>>,
}

impl Signer {
    /// Reads the files; the error names the one that can't be used.
    pub(in crate::delivery) fn new(endpoint: &str, config: &Config) -> Result<Signer, String> {
        let mut files = Vec::new();
        for path in &config.secret_files {
            let file = Watched::new(endpoint, vec![path.clone()], |contents| lines(&contents[0]));
            files.push(file.map_err(|error| format!("sign.secret_files: {error}"))?);
        }
        Ok(Signer {
            secrets: config.secrets.clone(),
            files,
        })
    }

    /// Adds the signature of a request that goes out now.
    pub(in crate::delivery) fn sign(&self, headers: &mut HeaderMap, id: &Uuid, body: &[u8]) {
        if self.secrets.is_empty() && self.files.is_empty() {
            return;
        }
        let files: Vec<_> = self.files.iter().map(Watched::current).collect();
        let secrets = self
            .secrets
            .iter()
            .chain(files.iter().flat_map(|s| s.iter()));
        add(headers, secrets, &id.to_string(), now(), body);
    }
}

/// A secret a line; empty lines and comments are left out.
fn lines(content: &Content) -> Result<Vec<Secret>, String> {
    let mut secrets = Vec::new();
    for (number, line) in (1..).zip(content.text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let secret = Secret::parse(line);
        let wrong = |error| content.wrong(format_args!("line {number}: {error}"));
        secrets.push(secret.map_err(wrong)?);
    }
    if secrets.is_empty() {
        // Sent without a signature, every delivery would be refused.
        return Err(content.wrong("holds no secret"));
    }
    Ok(secrets)
}

/// Seconds since 1970. A clock that stands before that is no better than 1970.
pub(crate) fn now() -> u64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "the receiver compares the time of a signature with its own clock"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
