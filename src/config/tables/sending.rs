//! What an endpoint's requests look like: the keys that `[defaults]` may hold as well.

use std::path::PathBuf;

use crate::{
    config::reader::Section,
    delivery::sign::{self, Secret},
};

pub(super) fn sign(endpoint: &Section<'_>) -> sign::Config {
    let section = endpoint.section("sign");
    let secrets = section.secrets("secrets", r#"secrets such as "whsec_…""#, |text| {
        Secret::parse(text).map_err(|error| error.to_string())
    });
    let files = section.list(
        "secret_files",
        r#"paths such as "/run/secrets/billing""#,
        path,
    );
    if section.given() && secrets.is_none() && files.is_none() {
        let message = "would sign nothing: it needs secrets, or secret_files, or both";
        section.problem("secrets", message.into());
    }
    sign::Config {
        secrets: secrets.unwrap_or_default(),
        secret_files: files.unwrap_or_default(),
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains(char::is_control) {
        return Err("a path must not be empty and have no control characters".into());
    }
    Ok(text.into())
}
