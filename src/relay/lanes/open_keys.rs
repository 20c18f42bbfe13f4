//! The keys that settles of this relay opened and that no claim has asked for yet.
//!
//! They wait in line: who was opened first, or was left behind by a claim, is asked for first. A claim gets a few at a time,
//! since each costs it a probe, whatever their number.

use std::collections::{HashSet, VecDeque};

/// A line without repetitions.
#[derive(Debug, Default)]
pub(super) struct OpenKeys {
    line: VecDeque<String>,
    known: HashSet<String>,
}

impl OpenKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// At the end of the line, unless it has its place already.
    pub(super) fn push(&mut self, key: String) {
        if self.known.insert(key.clone()) {
            self.line.push_back(key);
        }
    }

    /// Back to the front, in this order: a claim left them behind.
    pub(super) fn put_back(&mut self, keys: Vec<String>) {
        for key in keys.into_iter().rev() {
            if self.known.insert(key.clone()) {
                self.line.push_front(key);
            }
        }
    }

    /// The first of the line, so many at most.
    pub(super) fn take(&mut self, most: usize) -> Vec<String> {
        let keys: Vec<String> = self.line.drain(..most.min(self.line.len())).collect();
        for key in &keys {
            self.known.remove(key);
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn who_waits_longest_is_asked_for_first_whatever_its_name() {
        let mut open = OpenKeys::default();
        for key in ["z", "a", "m", "a"] {
            open.push(key.into());
        }
        assert_eq!(open.take(2), keys(&["z", "a"]));
        // Opened again while another one still waits.
        open.push("a".into());
        assert_eq!(open.take(9), keys(&["m", "a"]));
        assert!(open.is_empty());
    }

    #[test]
    fn what_a_claim_left_behind_keeps_its_place_before_the_others() {
        let mut open = OpenKeys::default();
        for key in ["a", "b", "c", "d"] {
            open.push(key.into());
        }
        let asked = open.take(3);
        // Opened once more while the claim was on its way.
        open.push("c".into());
        open.put_back(asked[1..].to_vec());
        assert_eq!(open.take(9), keys(&["b", "d", "c"]));
    }
}
