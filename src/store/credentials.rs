//! Credentials that change while the relay runs: a new connection takes those that the file of the URL holds then.
//!
//! Only user and password may change so. A file that leads elsewhere, can't be read or understood is said and left alone, and
//! the connection is made as before: which database a relay works on is decided at its start.

use std::fs;

use super::{
    Config, Error,
    connect::Connector,
    url::{self, Options},
};

// === impl Connector ===

impl Connector {
    /// What the file says now; `None` where there is none, or it can't be followed.
    pub(super) fn renewed(&self) -> Option<Options> {
        let path = self.config.url_file.as_ref()?;
        let read = || -> Result<Options, String> {
            let url = fs::read_to_string(path).map_err(|error| error.to_string())?;
            let url = url.trim().to_owned();
            let now = Config {
                url,
                ..self.config.clone()
            };
            if !now.leads_to(&self.config) {
                return Err("it leads elsewhere now, which needs a restart".into());
            }
            url::options(&now).map_err(|error| error.to_string())
        };
        read()
            .inspect_err(|error| {
                tracing::warn!(
                    file = %path.display(), error,
                    "database.url_file can't be followed: connecting as before"
                );
            })
            .ok()
    }
}

// === impl Config ===

impl Config {
    /// Whether this is the same database as `other`, reached in the same way, be it under credentials that the same file
    /// holds by now.
    pub fn leads_to(&self, other: &Config) -> bool {
        let same_file = self.url_file.is_some() && self.url_file == other.url_file;
        let same_place = || -> Result<bool, Error> {
            let (ours, mut theirs) = (url::options(self)?, url::options(other)?);
            let (credentials, before) = (&ours.postgres, &mut theirs.postgres);
            // Without a name the database is called as its user is.
            if credentials.get_user() != before.get_user() && credentials.get_dbname().is_none() {
                return Ok(false);
            }
            if let Some(user) = credentials.get_user() {
                before.user(user);
            }
            if let Some(password) = credentials.get_password() {
                before.password(password);
            }
            Ok(ours == theirs)
        };
        self.url == other.url || (same_file && same_place().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_credentials_in_the_same_file_may_change() {
        let table = [
            ("postgres://a:1@h/d", "postgres://a:2@h/d", true),
            ("postgres://a:1@h/d", "postgres://b:2@h/d", true),
            ("postgres://a@h/d", "postgres://a:2@h/d", true),
            (
                "host=h user=a password=1 dbname=d",
                "host=h dbname=d user=b password=2",
                true,
            ),
            ("postgres://a:1@h/d", "postgres://a:1@h/other", false),
            ("postgres://a:1@h/d", "postgres://a:1@other/d", false),
            ("postgres://a:1@h/d", "postgres://a:1@h:5433/d", false),
            (
                "postgres://a:1@h/d",
                "postgres://a:1@h/d?sslmode=disable",
                false,
            ),
            (
                "postgres://a:1@h/d?sslmode=require",
                "postgres://a:1@h/d?sslmode=verify-full",
                false,
            ),
            ("postgres://a:1@h", "postgres://a:2@h", true),
            ("postgres://a:1@h", "postgres://b:1@h", false),
            ("postgres://a:1@h/d", "nonsense", false),
        ];
        for (before, after, want) in table {
            let config = |url: &str, file: Option<&str>| Config {
                url: url.into(),
                url_file: file.map(Into::into),
                ca_file: None,
                lenient: false,
                guard: None,
            };
            let file = Some("/run/secrets/url");
            let same = config(after, file).leads_to(&config(before, file));
            assert_eq!(same, want, "{before} {after}");
            for other in [None, Some("/run/secrets/other")] {
                let moved = config(after, other).leads_to(&config(before, file));
                assert!(!moved, "{before} {after}: it is not the same file");
            }
        }
    }
}
