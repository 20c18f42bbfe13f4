//! What the targets share.
//!
//! An input is text where it can be, so that a seed can be written by hand and a crash can be read: its parts are divided by
//! the byte 0x1F, which no part can hold therefore.

use std::{path::PathBuf, sync::OnceLock, time::Duration};

use bytes::Bytes;
use outbox_relay::message::Delivery;
use reqwest::header::{HeaderMap, HeaderValue};
use uuid::Uuid;

/// A word that must come out nowhere. [`marked`] puts it where a secret belongs.
pub const MARK: &str = "Hunter2Hunter2";

/// The parts of an input.
pub struct Parts<'i>(std::slice::Split<'i, u8, fn(&u8) -> bool>);

impl<'i> Parts<'i> {
    pub fn new(input: &'i [u8]) -> Parts<'i> {
        Parts(input.split(|byte| *byte == 0x1f))
    }

    /// The next one; empty where there is none.
    pub fn bytes(&mut self) -> &'i [u8] {
        self.0.next().unwrap_or_default()
    }

    /// The next one as text, whatever it is.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The next one; `None` where it is missing or empty.
    pub fn optional(&mut self) -> Option<String> {
        Some(self.text()).filter(|text| !text.is_empty())
    }

    /// The next one as a number; 0 where it is none.
    pub fn number(&mut self) -> u64 {
        self.text().parse().unwrap_or_default()
    }

    /// All that are left.
    pub fn rest(self) -> Vec<&'i [u8]> {
        self.0.collect()
    }

    /// The next ones, until one is empty, in pairs.
    pub fn pairs(&mut self) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        while let Some(name) = self.optional() {
            pairs.push((name, self.text()));
        }
        pairs
    }

    /// The next ones as a row: topic, key, type, content type, body, headers.
    pub fn row(&mut self, id: u128) -> Delivery {
        let topic = self.text();
        let (key, kind, content_type) = (self.optional(), self.optional(), self.optional());
        let body = self.0.next().map(Bytes::copy_from_slice);
        Delivery {
            lease: 1,
            lane_endpoint: String::new(),
            id: Uuid::from_u128(id),
            topic,
            key,
            kind,
            body,
            content_type,
            headers: self.pairs(),
            seq: i64::MAX,
            attempts: 1,
            lost: 0,
            throttled: 0,
            generation: 0,
            sent_to: None,
            step: None,
            created_at: "2026-01-02T03:04:05.678901Z".into(),
            age: Duration::ZERO,
            expires_in: None,
        }
    }
}

/// A secret that an input makes, with [`MARK`] for each `$`.
pub fn marked(text: &str) -> String {
    text.replace(MARK, "").replace('$', MARK)
}

/// A text that an input makes, without [`MARK`].
pub fn unmarked(text: &str) -> String {
    text.replace("Hunter2", "")
}

/// What goes into a line of the log, or into the database.
pub fn assert_one_line(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(!text.contains(['\u{2028}', '\u{2029}']), "{text:?}");
    assert!(text.len() <= 1024, "{} bytes", text.len());
}

/// What may go over the wire as a header.
pub fn assert_legal(headers: &HeaderMap<HeaderValue>) {
    for (name, value) in headers {
        let legal = |byte: &u8| matches!(byte, b'\t' | 0x20..=0x7e);
        assert!(value.as_bytes().iter().all(legal), "{name}: {value:?}");
        let ends = [value.as_bytes().first(), value.as_bytes().last()];
        let blank = |end: &Option<&u8>| matches!(end, Some(b' ' | b'\t'));
        assert!(!ends.iter().any(blank), "{name}: {value:?}");
    }
}

/// Waits for what is never far.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    RUNTIME.get_or_init(runtime).block_on(future)
}

/// A file of this process alone, with these contents.
pub fn file(name: &str, contents: &[u8]) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let name = format!("outbox-relay-fuzz-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    });
    let path = directory.join(name);
    std::fs::write(&path, contents).unwrap();
    path
}
