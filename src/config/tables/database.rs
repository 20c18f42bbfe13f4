//! `[database]`: where the outbox is.

use std::{fs, path::PathBuf};

use crate::{
    config::reader::{Reader, Section},
    store,
};

pub(crate) fn database(reader: &Reader<'_>, section: &Section<'_>) -> Option<store::Config> {
    let url = database_url(reader, section);
    let config = store::Config {
        url: String::new(),
        url_file: None,
        ca_file: section
            .text("ca_file", r#"a path such as "/etc/ca.pem""#)
            .map(Into::into),
        lenient: section.choice(
            "altered_schema",
            "refuse",
            &[("refuse", false), ("warn", true)],
        ),
        guard: section.text("guard", r#"a word such as "production""#),
    };
    let (url, url_file) = url?;
    Some(store::Config {
        url,
        url_file,
        ..config
    })
}

/// The URL, and the file that it is from. An override comes before the file, and the file before `DATABASE_URL`, which is
/// often there for other programs.
fn database_url(reader: &Reader<'_>, section: &Section<'_>) -> Option<(String, Option<PathBuf>)> {
    const EXPECTED: &str = r#"a URL such as "postgres://user@host/database""#;
    const VARIABLE: &str = "DATABASE_URL";
    let url = section.secret("url", EXPECTED, connection);
    let file = section
        .aside()
        .text("url_file", r#"a path such as "/run/secrets/url""#);
    let file_first = section.overridden("url_file") && !section.overridden("url");
    let url_first = section.overridden("url") && !section.overridden("url_file");
    if section.has("url") && section.has("url_file") && !file_first && !url_first {
        let message = "stands beside url: only one of the two can be right";
        section.problem("url_file", message.into());
        None
    } else if section.has("url") && !file_first {
        Some((url?, None))
    } else if section.has("url_file") {
        let file = PathBuf::from(file?);
        let read = fs::read_to_string(&file).map_err(|error| format!("can't be read: {error}"));
        let url = read
            .and_then(|text| connection(text.trim()))
            .map_err(|message| section.problem("url_file", message));
        Some((url.ok()?, Some(file)))
    } else if let Some(text) = reader.variable(VARIABLE) {
        let url = connection(text).map_err(|message| reader.variable_problem(VARIABLE, message));
        Some((url.ok()?, None))
    } else {
        let message =
            "no database: set url or url_file in [database], or DATABASE_URL in the environment";
        section.problem("url", message.into());
        None
    }
}

/// Tells what is meant for a database from what is not; the rest is for the driver to judge. Shows nothing of the value.
fn connection(text: &str) -> Result<String, String> {
    let schemes = ["postgres://", "postgresql://"];
    let right = if text.contains("://") {
        schemes.iter().any(|scheme| text.starts_with(scheme))
    } else {
        text.contains('=')
    };
    if !right {
        return Err(r#"must be a URL such as "postgres://user@host/database" or a libpq string such as "host=db dbname=app"; its value is not shown here"#.into());
    }
    Ok(text.to_owned())
}
