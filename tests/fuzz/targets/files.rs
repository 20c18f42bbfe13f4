//! Files with credentials and certificates, of any bytes: a header that can be sent, or an error that names the file and
//! shows nothing of it.
//!
//! Parts: the kind, the file, and for a certificate the file with its key. `$` for what must not be seen, `@CERT@` and
//! `@KEY@` for a pair that is right.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use outbox_relay::delivery::{Endpoint, auth, fuzz, tls};
use outbox_relay_fuzz::{MARK, Parts, assert_legal, file};
use reqwest::{Url, header::HeaderName};

fn filled(bytes: &[u8]) -> Vec<u8> {
    static PAIR: OnceLock<[String; 2]> = OnceLock::new();
    let [cert, key] = PAIR.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["h.example".into()]).unwrap();
        [made.cert.pem(), made.signing_key.serialize_pem()]
    });
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let (piece, length): (&[u8], usize) = if rest.starts_with(b"@CERT@") {
            (cert.as_bytes(), 6)
        } else if rest.starts_with(b"@KEY@") {
            (key.as_bytes(), 5)
        } else if *first == b'$' {
            (MARK.as_bytes(), 1)
        } else {
            (&rest[..rest.len() - tail.len()], 1)
        };
        out.extend_from_slice(piece);
        rest = &rest[length..];
    }
    out
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let kind = parts.bytes();
    let one = file("one", &filled(parts.bytes()));
    let two = file("two", &filled(parts.bytes()));
    let url: Url = "https://h.example/".parse().unwrap();
    let mut endpoint = Endpoint::new("a", url.clone());
    let result = match kind {
        b"ca" | b"cert" => {
            let client = tls::ClientCertificate {
                cert_file: one.clone(),
                key_file: two,
            };
            let config = match kind {
                b"ca" => tls::Config {
                    ca_file: Some(one),
                    client: None,
                },
                _ => tls::Config {
                    ca_file: None,
                    client: Some(client),
                },
            };
            fuzz::certificates(&config)
        }
        _ => {
            match kind {
                b"basic" => {
                    endpoint.auth = auth::Config::Basic {
                        user: "u".into(),
                        password_file: one,
                    };
                }
                b"oauth2" => {
                    endpoint.auth = auth::Config::OAuth2(auth::oauth2::Config {
                        token_url: url,
                        client_id: "c".into(),
                        client_secret_file: one,
                        scope: None,
                        audience: None,
                    });
                }
                b"header" => {
                    endpoint.format.header_files = vec![(HeaderName::from_static("x-a"), one)];
                }
                _ => endpoint.auth = auth::Config::Bearer { file: one },
            }
            fuzz::secrets(&endpoint, b"").map(|headers| {
                assert_legal(&headers);
                assert!(
                    headers
                        .values()
                        .all(|value| value.is_sensitive() && !value.is_empty())
                );
            })
        }
    };
    if let Err(error) = result {
        assert!(!error.contains("Hunter2"), "{error}");
        assert!(!error.contains(['\n', '\r', '\0']), "{error:?}");
    }
});
