//! What is kept of an answer's body, which may be anything, a packed one among it, and of an error's text.
//!
//! Parts: the chunks of the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outbox_relay::delivery::{EXCERPT, fuzz};
use outbox_relay_fuzz::{Parts, assert_one_line};
use reqwest::Url;

fuzz_target!(|input: &[u8]| {
    let chunks = Parts::new(input).rest();
    let body = chunks.concat();
    let text = String::from_utf8_lossy(&body);
    let (kept, line) = fuzz::cut(&body, &text);
    assert_one_line(&line);
    assert_eq!(kept.is_none(), body.is_empty());
    let kept = kept.unwrap_or_default();
    assert!(kept.len() <= EXCERPT && !kept.contains('\0'));
    // What can be stored is stored as it is, and no character is cut.
    let whole = text.replace('\0', "\u{FFFD}");
    assert!(whole.starts_with(&kept));
    let next = whole[kept.len()..].chars().next();
    assert!(
        next.is_none_or(|next| kept.len() + next.len_utf8() > EXCERPT),
        "{next:?} would fit"
    );
    // However it comes in.
    let url = Url::parse("http://h.example/").unwrap();
    let answered = fuzz::answered(&url, 200, &[], &chunks, &[]).unwrap();
    assert_eq!(answered.whole.response.unwrap_or_default(), kept);
});
