//! What was seen of the backlog, sample by sample, for those who look at charts without a Prometheus.
//!
//! Bounded in numbers, not in time: with a few endpoints it reaches back a day, with hundreds of them an hour. It is of this process
//! alone and begins with it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::metrics::Backlog;

/// Backlogs that are remembered: about a megabyte.
const MOST: usize = 20_000;

/// How the backlog was at some time.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When that was.
    pub at: Instant,
    /// Of each endpoint; an empty name: nobody can deliver it.
    pub backlogs: Arc<[Backlog]>,
}

/// The newest is last. Cheap to clone: all clones are one.
#[derive(Clone, Default)]
pub struct Trail(Arc<Mutex<VecDeque<Seen>>>);

impl Trail {
    pub(super) fn add(&self, backlogs: &[Backlog], at: Instant) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push_back(Seen {
            at,
            backlogs: backlogs.into(),
        });
        let mut all: usize = seen.iter().map(|seen| seen.backlogs.len() + 1).sum();
        while all > MOST {
            let Some(oldest) = seen.pop_front() else {
                break;
            };
            all -= oldest.backlogs.len() + 1;
        }
    }

    /// How the backlog was lately, the oldest first.
    pub fn lately(&self, time: Duration) -> Vec<Seen> {
        self.of_the_last(time, Instant::now())
    }

    fn of_the_last(&self, time: Duration, now: Instant) -> Vec<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = |seen: &&Seen| now.saturating_duration_since(seen.at) <= time;
        seen.iter().filter(new).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest_and_never_grows_without_end() {
        let (trail, start) = (Trail::default(), Instant::now());
        let backlogs = |messages| {
            let backlog = |n: usize| Backlog {
                endpoint: n.to_string(),
                messages,
                oldest: 0.0,
            };
            (0..999).map(backlog).collect::<Vec<_>>()
        };
        for n in 0..25_u32 {
            trail.add(&backlogs(n.into()), start + Duration::from_secs(n.into()));
        }
        let now = start + Duration::from_secs(24);
        let all = trail.of_the_last(Duration::from_secs(60), now);
        assert_eq!((all.len(), all[0].backlogs[0].messages), (20, 5));
        let lately = trail.of_the_last(Duration::from_secs(2), now);
        assert_eq!(lately.len(), 3);
        assert_eq!(lately[2].backlogs[0].messages, 24);
    }
}
