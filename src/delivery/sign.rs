//! Signatures as Standard Webhooks 1.0 wants them: pure, but for the signer that brings secrets and the time.
//!
//! A signature covers the message's id, the time of this very attempt and the body as it is sent. Receivers refuse a time
//! that is off by five minutes, so it is made anew for every attempt and never stored. With several secrets there are
//! several signatures in one header: during a rotation the receiver may know the old one, the new one or both.
//!
//! Two kinds: `v1` is HMAC-SHA256 with a shared secret (`whsec_…`), `v1a` is ed25519 with a private key of ours
//! (`whsk_…`), whose public half the receiver has (`whpk_…`).
//!
//! A secret is in no message and no `Debug`.

mod signer;

use std::{fmt, path::PathBuf, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use ring::signature::{Ed25519KeyPair, KeyPair};
use sha2::Sha256;

pub(super) use signer::Signer;
pub(crate) use signer::now;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What an endpoint's requests are signed with; without any secret they are not signed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Secrets in the configuration itself.
    pub secrets: Vec<Secret>,
    /// Files with a secret a line, read again when they change.
    pub secret_files: Vec<PathBuf>,
}

/// One secret or private key.
#[derive(Clone)]
pub struct Secret(Key);

#[derive(Clone)]
enum Key {
    /// The decoded bytes of a `whsec_`.
    Shared(Vec<u8>),
    /// A `whsk_`.
    Private(Arc<Ed25519KeyPair>),
}

/// Why a text is no secret. It shows nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It begins like none.
    #[error("a signing secret must begin with whsec_ (shared secret) or whsk_ (private key)")]
    Prefix,
    /// A public key.
    #[error(
        "whpk_ is the receiver's public key; to sign, the private key that begins with whsk_ is needed"
    )]
    Public,
    /// What follows the prefix can't be decoded.
    #[error("what follows {prefix} must be base64, in the standard alphabet with its padding")]
    Base64 {
        /// What it begins with.
        prefix: &'static str,
    },
    /// A shared secret of the wrong length.
    #[error("a whsec_ secret must have 24 to 64 bytes, this one has {0}")]
    SharedLength(usize),
    /// A private key of the wrong length.
    #[error("a whsk_ key must have 64 bytes, the seed and the public key, this one has {0}")]
    PrivateLength(usize),
    /// A private key whose halves don't belong together.
    #[error("the two halves of this whsk_ key don't belong together")]
    Halves,
}

// === impl Secret ===

impl Secret {
    /// Reads `whsec_…` or `whsk_…`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the text.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let decode = |prefix, encoded| {
            BASE64_STANDARD
                .decode(encoded)
                .map_err(|_| SecretError::Base64 { prefix })
        };
        if let Some(encoded) = text.strip_prefix("whsec_") {
            let bytes = decode("whsec_", encoded)?;
            if !(24..=64).contains(&bytes.len()) {
                return Err(SecretError::SharedLength(bytes.len()));
            }
            Ok(Secret(Key::Shared(bytes)))
        } else if let Some(encoded) = text.strip_prefix("whsk_") {
            let bytes = decode("whsk_", encoded)?;
            let (Some((seed, public)), 64) = (bytes.split_at_checked(32), bytes.len()) else {
                return Err(SecretError::PrivateLength(bytes.len()));
            };
            let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public)
                .map_err(|_| SecretError::Halves)?;
            Ok(Secret(Key::Private(Arc::new(pair))))
        } else if text.starts_with("whpk_") {
            Err(SecretError::Public)
        } else {
            Err(SecretError::Prefix)
        }
    }

    /// One signature, with its version.
    fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let head = format!("{id}.{seconds}.");
        match &self.0 {
            Key::Shared(key) => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any length");
                mac.update(head.as_bytes());
                mac.update(body);
                format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
            }
            Key::Private(pair) => {
                let content = [head.as_bytes(), body].concat();
                format!("v1a,{}", BASE64_STANDARD.encode(pair.sign(&content)))
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Key::Shared(_) => "whsec_…",
            Key::Private(_) => "whsk_…",
        })
    }
}

impl PartialEq for Secret {
    /// Of configurations, not of what a stranger sends: its time may tell the content.
    fn eq(&self, other: &Secret) -> bool {
        match (&self.0, &other.0) {
            (Key::Shared(a), Key::Shared(b)) => a == b,
            (Key::Private(a), Key::Private(b)) => {
                a.public_key().as_ref() == b.public_key().as_ref()
            }
            (Key::Shared(_), Key::Private(_)) | (Key::Private(_), Key::Shared(_)) => false,
        }
    }
}

/// Adds the three headers: one signature for each secret, or nothing without any.
///
/// `seconds` is the time of this attempt, since 1970; `body` is what is sent, byte for byte.
fn add<'s>(
    headers: &mut HeaderMap,
    secrets: impl Iterator<Item = &'s Secret>,
    id: &str,
    seconds: u64,
    body: &[u8],
) {
    let signatures: Vec<String> = secrets
        .map(|secret| secret.sign(id, seconds, body))
        .collect();
    if signatures.is_empty() {
        return;
    }
    headers.insert(ID, ascii(id));
    headers.insert(TIMESTAMP, seconds.into());
    headers.insert(SIGNATURE, ascii(&signatures.join(" ")));
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("a UUID, or base64: visible ASCII")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const FIRST: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    pub(crate) const SECOND: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    pub(crate) const PRIVATE: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";

    pub(crate) fn signatures(secrets: &[&str], id: &str, seconds: u64, body: &[u8]) -> HeaderMap {
        let secrets: Vec<Secret> = secrets.iter().map(|s| Secret::parse(s).unwrap()).collect();
        let mut headers = HeaderMap::new();
        add(&mut headers, secrets.iter(), id, seconds, body);
        headers
    }

    /// The published vectors.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let table: [(&str, &str, u64, &[u8], &str); 5] = [
            (
                FIRST,
                "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
                1_649_367_553,
                br#"{"email":"test@example.com","username":"test_user"}"#,
                "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
            ),
            (
                SECOND,
                MESSAGE,
                1_614_265_330,
                br#"{"test": 2432232314}"#,
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
            (
                PRIVATE,
                MESSAGE,
                1_614_265_330,
                br#"{"test": 2432232314}"#,
                "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
            ),
            (
                SECOND,
                MESSAGE,
                1_614_265_330,
                b"\x00\xff\x80\x0a",
                "v1,jO7pq/GFC/1jo3M4WVqc9oGeToYhcowI8vSp9/CbTmQ=",
            ),
            (
                SECOND,
                MESSAGE,
                1_614_265_330,
                b"",
                "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A=",
            ),
        ];
        for (secret, id, seconds, body, want) in table {
            let headers = signatures(&[secret], id, seconds, body);
            assert_eq!(headers[SIGNATURE], want);
            assert_eq!(headers[ID], id);
            assert_eq!(headers[TIMESTAMP], seconds.to_string());
            assert_eq!(headers.len(), 3);
        }
    }

    #[test]
    fn several_secrets_sign_in_one_header() {
        let headers = signatures(&[SECOND, PRIVATE, FIRST], MESSAGE, 1, b"x");
        let all = headers[SIGNATURE].to_str().unwrap();
        let alone = |secret| {
            let headers = signatures(&[secret], MESSAGE, 1, b"x");
            headers[SIGNATURE].to_str().unwrap().to_owned()
        };
        assert_eq!(all, [SECOND, PRIVATE, FIRST].map(alone).join(" "));
        assert!(signatures(&[], MESSAGE, 1, b"x").is_empty());
    }

    #[test]
    fn what_is_no_secret_says_why_and_shows_nothing() {
        let shared = |bytes: usize| format!("whsec_{}", BASE64_STANDARD.encode(vec![7; bytes]));
        let private = |bytes: usize| format!("whsk_{}", BASE64_STANDARD.encode(vec![7; bytes]));
        let base64 = |prefix| SecretError::Base64 { prefix };
        let table = [
            ("", SecretError::Prefix),
            ("c3VwZXJzM2NyZXQ=", SecretError::Prefix),
            ("WHSEC_s3cret", SecretError::Prefix),
            ("whpk_s3cret", SecretError::Public),
            ("whsec_s3cret!", base64("whsec_")),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", base64("whsec_")),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", base64("whsec_")),
            ("whsec_____________________________s3c", base64("whsec_")),
            ("whsk_s3cret!", base64("whsk_")),
            ("whsec_", SecretError::SharedLength(0)),
            (&shared(23), SecretError::SharedLength(23)),
            (&shared(65), SecretError::SharedLength(65)),
            (&private(32), SecretError::PrivateLength(32)),
            (&private(65), SecretError::PrivateLength(65)),
            (&private(64), SecretError::Halves),
        ];
        for (text, want) in table {
            let error = Secret::parse(text).unwrap_err();
            assert_eq!(error, want, "{text}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        assert!(Secret::parse(&shared(24)).is_ok() && Secret::parse(&shared(64)).is_ok());
    }

    #[test]
    fn secrets_are_told_apart_and_not_shown() {
        let parse = |text| Secret::parse(text).unwrap();
        assert_eq!(parse(FIRST), parse(FIRST));
        assert_eq!(parse(PRIVATE), parse(PRIVATE));
        assert_ne!(parse(FIRST), parse(SECOND));
        assert_ne!(parse(FIRST), parse(PRIVATE));
        let shown = format!("{:?}", [parse(FIRST), parse(PRIVATE)]);
        assert_eq!(shown, "[whsec_…, whsk_…]");
    }
}
