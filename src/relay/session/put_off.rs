//! When a receiver asks to be left alone (`Retry-After`): for this relay at once, for all relays through the endpoint's row.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Session;

/// The endpoint's row is written so often at most, however many answers say the same.
const TELL: Duration = Duration::from_secs(1);

/// What one endpoint asked for.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    until: Option<Instant>,
    /// Up to when the other relays know, and when they were told.
    told: Option<(Instant, Instant)>,
}

impl PutOff {
    pub(super) fn ask(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
    }

    /// Until when the others are to be told that it is closed, if it is time for that.
    fn due(&self, now: Instant) -> Option<Instant> {
        let until = self.until.filter(|until| *until > now)?;
        match self.told {
            // Half a second more or less is not worth a write.
            Some((known, at)) if until <= known + TELL / 2 || now < at + TELL => None,
            Some(_) | None => Some(until),
        }
    }
}

impl Session<'_> {
    /// Tells all relays which endpoints asked to be left alone.
    pub(super) async fn tell_put_off(&mut self) {
        let now = Instant::now();
        let due: Vec<(Arc<str>, Instant)> = self
            .put_off
            .iter()
            .filter_map(|(name, put_off)| Some((name.clone(), put_off.due(now)?)))
            .collect();
        for (endpoint, until) in due {
            if !self.may_call() {
                return;
            }
            match self
                .stage
                .store
                .put_off(&endpoint, until.duration_since(now))
                .await
            {
                Ok(()) => {
                    if let Some(put_off) = self.put_off.get_mut(&endpoint) {
                        put_off.told = Some((until, now));
                    }
                }
                Err(error) => self.failed("put_off", &error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_told_once_a_second_at_most() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let mut put_off = PutOff::default();
        assert_eq!(put_off.due(now), None);
        put_off.ask(now + seconds(5));
        assert_eq!(put_off.due(now), Some(now + seconds(5)));
        put_off.told = Some((now + seconds(5), now));
        put_off.ask(now + seconds(9));
        assert_eq!(put_off.due(now + seconds(1) / 2), None, "a moment ago");
        assert_eq!(put_off.due(now + seconds(1)), Some(now + seconds(9)));
        assert_eq!(put_off.due(now + seconds(10)), None, "it is over");
    }
}
