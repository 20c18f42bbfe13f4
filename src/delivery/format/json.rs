//! JSON around stored bytes, which are never read and written again: numbers, order and members that come twice stay as
//! they are.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::value::RawValue;

/// An object that is being written.
pub(super) struct Object<'j> {
    json: &'j mut Vec<u8>,
    empty: bool,
}

// === impl Object ===

impl<'j> Object<'j> {
    pub(super) fn new(json: &'j mut Vec<u8>) -> Object<'j> {
        json.push(b'{');
        Object { json, empty: true }
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.json(name, text(value).as_bytes());
    }

    /// Bytes that are JSON already.
    pub(super) fn json(&mut self, name: &str, value: &[u8]) {
        if !self.empty {
            self.json.push(b',');
        }
        self.empty = false;
        self.json.extend_from_slice(text(name).as_bytes());
        self.json.push(b':');
        self.json.extend_from_slice(value);
    }

    pub(super) fn base64(&mut self, name: &str, value: &[u8]) {
        self.json(name, b"\"");
        self.json
            .extend_from_slice(BASE64_STANDARD.encode(value).as_bytes());
        self.json.push(b'"');
    }

    /// An object of texts.
    pub(super) fn texts(&mut self, name: &str, members: &[(String, String)]) {
        self.json(name, b"");
        let mut inner = Object::new(self.json);
        for (name, value) in members {
            inner.text(name, value);
        }
        inner.end();
    }

    pub(super) fn end(self) {
        self.json.push(b'}');
    }
}

/// An array of what `write` makes of each item.
pub(super) fn array<T>(json: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    json.push(b'[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        write(json, item);
    }
    json.push(b']');
}

/// Whether the stored bytes are what their type says: JSON.
pub(super) fn is_json(content_type: Option<&str>, stored: &[u8]) -> bool {
    let kind = content_type.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let subtype = kind.split_once('/').map_or("", |(_, subtype)| subtype);
    let subtype = subtype.to_ascii_lowercase();
    (subtype == "json" || subtype.ends_with("+json"))
        && serde_json::from_slice::<&RawValue>(stored).is_ok()
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
