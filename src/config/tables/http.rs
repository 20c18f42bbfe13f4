//! `[http]`: where a relay is asked how it is and what it counts.

use std::{net::SocketAddr, time::Duration};

use super::{DAY, MINUTE, SECOND, Section, plain_url};
use crate::{admin, config::units::quoted};

const EXPECTED: &str = r#"an address and a port such as "127.0.0.1:9090" or "[::]:9090""#;

/// Where to listen, and how long a message may be due while the relay is ready.
pub(crate) fn http(section: &Section<'_>) -> (admin::Config, Option<Duration>) {
    // Replicas on one host differ in it, and should still have one digest.
    let listen = section.aside().optional("listen", EXPECTED, |text| {
        let address = text.parse::<SocketAddr>();
        address.map_err(|_| format!("expected {EXPECTED}, found {}", quoted(text)))
    });
    let max_due_age = section.duration_if_any("max_due_age", 5 * MINUTE, SECOND..=365 * DAY);
    let sample_every = section.duration("sample_every", 15 * SECOND, SECOND..=60 * MINUTE);
    let operators_file = section.path("operators_file", "/run/secrets/operators");
    let readers_file = section.path("readers_file", "/run/secrets/readers");
    let callbacks = section.optional(
        "callbacks_url",
        r#"a URL such as "https://outbox.example.com""#,
        plain_url,
    );
    section.check(
        &["callbacks_url"],
        callbacks.is_none() || section.has("listen"),
        || "means something only with listen".into(),
    );
    let config = admin::Config {
        listen,
        sample_every,
        operators_file,
        readers_file,
        callbacks,
    };
    (config, max_due_age)
}
