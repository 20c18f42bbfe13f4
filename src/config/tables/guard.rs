//! Which addresses an endpoint may have: `guard = "on"`, `"off"`, or `{ allow = ["10.0.0.0/8"] }`.

use crate::{
    config::{reader::Section, units},
    delivery::{
        Endpoint, auth,
        guard::{self, Config},
    },
};

const KEY: &str = "guard";

/// An endpoint's own takes the place of an inherited one, whole.
pub(super) fn guard(endpoint: &Section<'_>) -> Config {
    let inherited = endpoint.base().and_then(|base| alone(&base));
    let config = alone(endpoint).or(inherited).unwrap_or_default();
    endpoint.effective(KEY, &config);
    config
}

/// What this table itself says.
fn alone(section: &Section<'_>) -> Option<Config> {
    let section = section.alone().aside();
    let expected = r#""on", "off" or a table such as { allow = ["10.0.0.0/8"] }"#;
    let word = section.word(KEY, expected, |text| match text {
        "on" => Ok(Config::On { allow: Vec::new() }),
        "off" => Ok(Config::Off),
        _ => Err(format!(
            "expected {expected}, found {}",
            units::quoted(text)
        )),
    });
    if section.is_wrong(KEY) {
        // No reason to judge URLs by it.
        return Some(Config::Off);
    }
    if section.overridden(KEY) || !section.gives(KEY) {
        return word;
    }
    let table = section.section(KEY);
    let networks = r#"networks such as "10.0.0.0/8""#;
    let allow = table.list("allow", networks, guard::network);
    if !table.has("allow") {
        let message = r#"is missing: expected a list of networks; without any, say guard = "on""#;
        table.problem("allow", message.into());
    }
    match allow {
        Some(allow) if !table.is_wrong("allow") => Some(Config::On { allow }),
        Some(_) | None => Some(Config::Off),
    }
}

/// URLs with an address that the guard refuses: no DNS will ever mend them.
pub(super) fn check(section: &Section<'_>, endpoint: &Endpoint) {
    if let Err(message) = endpoint.guard.literal(&endpoint.url) {
        section.problem("url", message);
    }
    match &endpoint.auth {
        auth::Config::None | auth::Config::Bearer { .. } | auth::Config::Basic { .. } => {}
        auth::Config::OAuth2(config) => {
            if let Err(message) = endpoint.guard.literal(&config.token_url) {
                section.section("oauth2").problem("token_url", message);
            }
        }
    }
}
