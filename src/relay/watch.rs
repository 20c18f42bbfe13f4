//! Which relays are dead: decided by watching their beats, never by a clock that somebody else sets. Pure.
//!
//! A relay is dead for this one when its beat has stayed the same for a whole lease time, by this relay's monotonic clock,
//! in samples that are close to each other. A gap between two samples (an outage, a pause of this process, a beat of our
//! own that failed) makes everything seen before worthless: nobody could beat while the database was away. So an
//! outage, a failover or a step of a clock reaps nobody who lives.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

use crate::store::Peer;

/// What was seen of the other relays so far.
#[derive(Debug)]
pub(super) struct Watch {
    lease: Duration,
    last_sample: Option<Instant>,
    seen: HashMap<Uuid, Seen>,
}

#[derive(Debug)]
struct Seen {
    beat: i64,
    since: Instant,
}

impl Watch {
    /// `lease` is this relay's own lease time.
    pub(super) fn new(lease: Duration) -> Watch {
        Watch {
            lease,
            last_sample: None,
            seen: HashMap::new(),
        }
    }

    /// Forgets everything: the connection broke, or a beat of our own was not committed.
    pub(super) fn forget(&mut self) {
        self.last_sample = None;
        self.seen.clear();
    }

    /// Takes a sample at `now` and returns those who are dead. `now` is a moment before the sample was asked for.
    pub(super) fn sample(&mut self, peers: Vec<Peer>, now: Instant) -> Vec<Peer> {
        if self
            .last_sample
            .is_some_and(|last| now.duration_since(last) > self.lease / 3)
        {
            self.forget();
        }
        self.last_sample = Some(now);
        self.seen
            .retain(|relay, _| peers.iter().any(|peer| peer.relay == *relay));
        let mut dead = Vec::new();
        for peer in peers {
            let seen = self.seen.entry(peer.relay).or_insert(Seen {
                beat: peer.beat,
                since: now,
            });
            if seen.beat != peer.beat {
                *seen = Seen {
                    beat: peer.beat,
                    since: now,
                };
            } else if now.duration_since(seen.since) >= self.lease.max(peer.lease) {
                dead.push(peer);
            }
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(12);
    const STEP: Duration = Duration::from_secs(3);

    fn peer(beat: i64) -> Peer {
        Peer {
            relay: Uuid::from_u128(1),
            name: "other".into(),
            beat,
            lease: LEASE,
        }
    }

    /// Samples every three seconds; `beat` says what is seen at each step. Returns the steps at which it was dead.
    fn deaths(mut watch: Watch, beats: impl IntoIterator<Item = i64>) -> Vec<usize> {
        let start = Instant::now();
        let mut now = start;
        let mut steps = Vec::new();
        for (step, beat) in beats.into_iter().enumerate() {
            if !watch.sample(vec![peer(beat)], now).is_empty() {
                steps.push(step);
            }
            now += STEP;
        }
        steps
    }

    #[test]
    fn one_whose_beat_stays_for_a_lease_time_is_dead() {
        assert_eq!(deaths(Watch::new(LEASE), [5, 5, 5, 5, 5, 5]), [4, 5]);
    }

    #[test]
    fn one_that_beats_lives() {
        assert!(deaths(Watch::new(LEASE), [5, 5, 5, 6, 6, 6, 7, 7, 8, 8]).is_empty());
        assert_eq!(deaths(Watch::new(LEASE), [5, 5, 5, 6, 6, 6, 6, 6]), [7]);
    }

    #[test]
    fn a_gap_between_samples_starts_the_watch_anew() {
        let mut watch = Watch::new(LEASE);
        let start = Instant::now();
        for step in 0..4 {
            assert!(watch.sample(vec![peer(5)], start + STEP * step).is_empty());
        }
        // An outage of an hour: the others could not beat either.
        let back = start + Duration::from_secs(3600);
        for step in 0..4 {
            assert!(
                watch.sample(vec![peer(5)], back + STEP * step).is_empty(),
                "{step}"
            );
        }
        assert_eq!(watch.sample(vec![peer(5)], back + STEP * 4).len(), 1);
    }

    #[test]
    fn a_longer_lease_of_the_other_is_respected() {
        let mut watch = Watch::new(LEASE);
        let start = Instant::now();
        let slow = Peer {
            lease: LEASE * 2,
            ..peer(5)
        };
        for step in 0..8 {
            assert!(
                watch
                    .sample(vec![slow.clone()], start + STEP * step)
                    .is_empty(),
                "{step}"
            );
        }
        assert_eq!(watch.sample(vec![slow], start + STEP * 8).len(), 1);
    }
}
