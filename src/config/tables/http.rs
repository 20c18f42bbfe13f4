//! `[http]`: where a relay is asked how it is and what it counts.

use std::{net::SocketAddr, time::Duration};

use reqwest::header::HeaderName;

use super::{DAY, MIB, MINUTE, SECOND, Section, endpoint_name, plain_url, sending};
use crate::{
    admin::{self, Scheme, Webhook},
    config::units::quoted,
    route::Routes,
};

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
    let writers_file = section.path("writers_file", "/run/secrets/writers");
    // Health and metrics may be asked for from anywhere: what the API takes and gives, tokens and payloads, may not pass in the clear.
    let has_tokens = [&operators_file, &readers_file, &writers_file]
        .iter()
        .any(|file| file.is_some());
    let public = section.flag("public", false);
    let beyond = listen.filter(|listen| !listen.ip().to_canonical().is_loopback());
    let at = beyond.map_or_else(String::new, |listen| listen.to_string());
    section.check(
        &["listen", "operators_file", "readers_file", "writers_file"],
        beyond.is_none() || !has_tokens || public,
        || {
            format!(
                "with operators_file, readers_file or writers_file the API would be at {at} for other hosts, in plain HTTP, tokens and payloads \
                 too: listen at a loopback address, or put something that speaks TLS before it and say public = true"
            )
        },
    );
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
    let signers_file = section.path("signers_file", "/run/secrets/signers");
    let config = admin::Config {
        listen,
        sample_every,
        operators_file,
        readers_file,
        callbacks,
        writers_file,
        signers_file,
        // As JSON with its body in base64 a message of 16 MiB has more than 21.
        max_body: section.size("max_body", MIB, 1024..=24 * MIB),
        webhooks: Vec::new(),
    };
    (config, max_due_age)
}

/// `[[webhooks]]`: what others send, and how they sign it.
pub(crate) fn webhooks(root: &Section<'_>, routes: &Routes) -> Vec<Webhook> {
    const NAME: &str = r#"a name such as "github""#;
    const SCHEMES: [(&str, Scheme); 3] = [
        ("standard-webhooks", Scheme::StandardWebhooks),
        ("github", Scheme::GitHub),
        ("stripe", Scheme::Stripe),
    ];
    let mut names: Vec<String> = Vec::new();
    let mut list = Vec::new();
    for mut entry in root.sections("webhooks").into_iter().flatten() {
        let name = entry.aside().required("name", NAME, |text| {
            let name = endpoint_name(text)?;
            match names.contains(&name) {
                true => Err(format!("there is another webhook {name:?}")),
                false => Ok(name),
            }
        });
        if let Some(name) = &name {
            names.push(name.clone());
            entry = entry.named("webhooks", name);
        }
        let topic = entry.required("topic", r#"a topic such as "github.push""#, |text| {
            sending::routed(text, routes)
        });
        let kind = entry.optional("type", r#"a type such as "push""#, sending::topic);
        let scheme = entry.choice("scheme", "standard-webhooks", &SCHEMES);
        let files = entry.list(
            "secret_files",
            r#"paths such as "/run/secrets/github""#,
            sending::path,
        );
        if files.as_ref().is_none_or(Vec::is_empty) && !entry.is_wrong("secret_files") {
            let message = "is missing: without a secret anybody could send";
            entry.problem("secret_files", message.into());
        }
        let header = |text: &str| {
            let name = HeaderName::from_bytes(text.as_bytes());
            name.map_err(|_| format!("{} is no legal header name", quoted(text)))
        };
        const HEADER: &str = r#"a header name such as "X-Delivery""#;
        let signature = entry.optional("signature_header", HEADER, header);
        let is_github = scheme == Scheme::GitHub;
        entry.check(
            &["signature_header"],
            is_github || signature.is_none(),
            || r#"means something with scheme = "github" only"#.into(),
        );
        let id_header = entry.optional("id_header", HEADER, header);
        let is_standard = scheme == Scheme::StandardWebhooks;
        entry.check(&["id_header"], !is_standard || id_header.is_none(), || {
            "means nothing here: the id of Standard Webhooks is signed, in webhook-id".into()
        });
        let headers = entry.list(
            "headers",
            r#"header names such as "X-GitHub-Event""#,
            sending::header_name,
        );
        let default = HeaderName::from_static("x-hub-signature-256");
        if let (Some(name), Some(topic), Some(secret_files)) = (name, topic, files) {
            list.push(Webhook {
                name,
                topic,
                kind,
                scheme,
                secret_files,
                signature_header: signature.unwrap_or(default),
                id_header,
                headers: headers.unwrap_or_default(),
            });
        }
    }
    list
}
