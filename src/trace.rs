//! W3C Trace Context (level 1), and what one request tells a tracing system: pure.
//!
//! The application stores its own context in a row's headers. An attempt is a span of that trace, and what the receiver gets
//! is the attempt's context, so that what it does hangs below the attempt. A context that is not valid starts nothing, and its
//! `tracestate` is dropped with it.

use std::{fmt, time::Duration};

use rand::{Rng, RngExt};
use uuid::Uuid;

use crate::message::Class;

/// The name of the header.
pub const TRACEPARENT: &str = "traceparent";

/// Which trace, and which span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    trace: u128,
    span: u64,
    /// Whoever began the trace wants it recorded.
    pub sampled: bool,
}

/// What becomes of the two headers of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are sent as they are.
    #[default]
    Untouched,
    /// Neither is sent: there is no trace, or none that is valid.
    Dropped,
    /// This context is sent, and the row's `tracestate` if it goes with it.
    Replaced {
        /// The attempt's.
        context: Context,
        /// The row's context was valid.
        with_state: bool,
    },
}

/// One request, as a tracing system is told of it.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its own.
    pub context: Context,
    /// The row's; `None`: it begins the trace.
    pub parent: Option<Context>,
    /// Of the messages of a batch.
    pub links: Vec<Context>,
    /// Nanoseconds since 1970.
    pub started: u64,
    /// How long it took.
    pub duration: Duration,
    /// The endpoint's name.
    pub endpoint: String,
    /// The request's method.
    pub method: String,
    /// The endpoint's URL as it is configured, without its query; no field in it is filled.
    pub url: String,
    /// The topic.
    pub topic: String,
    /// The message; of a batch none.
    pub message: Option<Uuid>,
    /// How many messages.
    pub messages: usize,
    /// Which attempt at the message, from 1.
    pub attempt: u32,
    /// What came of it.
    pub class: Class,
    /// The HTTP status.
    pub status: Option<u16>,
}

// === impl Context ===

impl Context {
    /// Reads a `traceparent`.
    pub fn parse(text: &str) -> Option<Context> {
        let text = text.trim_matches([' ', '\t']);
        let mut fields = text.splitn(5, '-');
        let [version, trace, span, flags] = std::array::from_fn(|_| fields.next());
        let version = hex(version?, 2)?;
        // A later version may go on; this one may not, and ff is none.
        if version == 0xff || version == 0 && fields.next().is_some() {
            return None;
        }
        let (trace, span) = (hex(trace?, 32)?, hex(span?, 16)?);
        let flags = hex(flags?, 2)?;
        (trace != 0 && span != 0).then_some(Context {
            trace,
            span: u64::try_from(span).ok()?,
            sampled: flags & 1 == 1,
        })
    }

    /// That of a row's headers. Two of them are none.
    pub fn of_row(headers: &[(String, String)]) -> Option<Context> {
        let mut found = headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
        match (found.next(), found.next()) {
            (Some((_, text)), None) => Context::parse(text),
            _ => None,
        }
    }

    /// The first span of a new trace.
    pub fn root(sampled: bool, rng: &mut impl Rng) -> Context {
        Context {
            trace: rng.random_range(1..=u128::MAX),
            span: rng.random_range(1..=u64::MAX),
            sampled,
        }
    }

    /// Another span of the same trace.
    pub fn child(&self, rng: &mut impl Rng) -> Context {
        Context {
            span: rng.random_range(1..=u64::MAX),
            ..*self
        }
    }

    /// 32 hex digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// 16 hex digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }
}

impl fmt::Display for Context {
    /// As a `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sampled = u8::from(self.sampled);
        write!(f, "00-{:032x}-{:016x}-{sampled:02x}", self.trace, self.span)
    }
}

/// So many hex digits, in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let right = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(right))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_as_the_standard_says() {
        let table = [
            (VALID, true),
            (
                "  00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\t",
                true,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
                true,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
                true,
            ),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                true,
            ),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-follows",
                true,
            ),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x",
                false,
            ),
            (
                "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                false,
            ),
            (
                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                false,
            ),
            (
                "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
                false,
            ),
            (
                "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                false,
            ),
            (
                "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                false,
            ),
            ("00-0", false),
            ("", false),
        ];
        for (text, valid) in table {
            assert_eq!(Context::parse(text).is_some(), valid, "{text:?}");
        }
    }

    #[test]
    fn a_child_is_of_the_same_trace_and_a_root_of_another() {
        let mut rng = StdRng::seed_from_u64(1);
        let parent = Context::parse(VALID).unwrap();
        assert_eq!(parent.to_string(), VALID);
        assert_eq!(parent.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id(), "b7ad6b7169203331");
        let child = parent.child(&mut rng);
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_ne!(child.span_id(), parent.span_id());
        assert!(child.sampled);
        let root = Context::root(false, &mut rng);
        assert_ne!(root.trace_id(), parent.trace_id());
        assert!(root.to_string().ends_with("-00"));
    }

    #[test]
    fn a_row_with_two_contexts_has_none() {
        let header = |name: &str| (name.to_owned(), VALID.to_owned());
        assert!(Context::of_row(&[header("TraceParent"), header("x")]).is_some());
        assert!(Context::of_row(&[header("traceparent"), header("Traceparent")]).is_none());
        assert!(Context::of_row(&[]).is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_as_a_context_that_is_read_alike(text in prop_oneof![
            any::<String>(),
            "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?",
            "00-[0-9a-fA-F]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}",
        ]) {
            let Some(context) = Context::parse(&text) else { return Ok(()) };
            let written = context.to_string();
            prop_assert_eq!(written.len(), 55);
            prop_assert_eq!(Context::parse(&written), Some(context));
            prop_assert_eq!(&written[3..52], &text.trim_matches([' ', '\t'])[3..52]);
        }
    }
}
