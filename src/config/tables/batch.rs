//! Several messages in one request: `batch = { messages = 100, bytes = "1MiB" }`, or `"none"` where one is inherited.

use super::MIB;
use crate::{
    config::{reader::Section, units},
    delivery::{
        Endpoint,
        batch::{self, Config},
    },
};

const KEY: &str = "batch";

const NONE: &str = "none";

/// What a table itself says.
enum Said {
    Nothing,
    None,
    Table,
}

/// Key by key, as other tables are inherited; `"none"` stands for the whole of it.
pub(super) fn batch(endpoint: &Section<'_>) -> Option<Config> {
    let inherited = endpoint.base().map_or(Said::Nothing, |base| said(&base));
    let section = match (said(endpoint), inherited) {
        (Said::Table | Said::Nothing, Said::Table) => endpoint.section(KEY),
        // There, the word would be a mistake.
        (Said::Table, _) => endpoint.alone().section(KEY),
        (Said::None, _) | (Said::Nothing, _) => return None,
    };
    let default = Config::default();
    Some(Config {
        messages: section.count("messages", default.messages, 2..=1000),
        bytes: section.size("bytes", default.bytes, 1024..=64 * MIB),
    })
}

fn said(section: &Section<'_>) -> Said {
    let section = section.alone().aside();
    let expected = r#"a table such as { messages = 100, bytes = "1MiB" }, or "none""#;
    let word = section.word(KEY, expected, |text| match text {
        NONE => Ok(()),
        _ => Err(format!(
            "expected {expected}, found {}",
            units::quoted(text)
        )),
    });
    if word.is_some() || section.is_wrong(KEY) {
        Said::None
    } else if section.gives(KEY) {
        Said::Table
    } else {
        Said::Nothing
    }
}

/// What can't be in batches.
pub(super) fn check(section: &Section<'_>, endpoint: &Endpoint) {
    if let Some((key, message)) = batch::refusal(endpoint) {
        section.check(&[key], false, || message);
    }
}
