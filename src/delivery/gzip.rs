//! Compression of large bodies, for endpoints that say they can read it.
//!
//! On a thread for blocking work: megabytes take tenths of a second, in which nobody's answer would be looked at. The same
//! bytes come out each time, so a receiver that compares bodies sees no other one at the next attempt.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use tokio::task::spawn_blocking;

/// The body in gzip; `None` where that is no shorter.
pub(super) async fn compressed(body: Bytes) -> Option<Bytes> {
    // A panic, or a runtime that is going down: then it is sent as it is.
    spawn_blocking(move || compress(&body)).await.ok().flatten()
}

fn compress(body: &[u8]) -> Option<Bytes> {
    // No time and no name in its head.
    let out = Vec::with_capacity(body.len() / 4);
    let mut encoder = GzBuilder::new().write(out, Compression::fast());
    encoder.write_all(body).ok()?;
    let out = encoder.finish().ok()?;
    (out.len() < body.len()).then(|| out.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn what_is_compressed_is_the_same_each_time_and_comes_out_again() {
        let body = b"{\"n\": 50755254975729665}".repeat(1000);
        let out = compress(&body).unwrap();
        assert!(out.len() < body.len() / 10);
        assert_eq!(compress(&body).unwrap(), out);
        let mut back = Vec::new();
        GzDecoder::new(&out[..]).read_to_end(&mut back).unwrap();
        assert_eq!(back, body);
        assert_eq!(compress(b"short"), None);
    }
}
