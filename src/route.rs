//! Topic → endpoint: pure.
//!
//! A topic is a list of words between dots. In a pattern, `*` stands for exactly one word and `**`, as the last word, for
//! one or more. Routes are asked in the order of the file and the first that matches decides, so the special case
//! stands before the general one.

use std::fmt;

use crate::retry;

/// A topic pattern: `order.created`, `order.*`, `order.**` or `**`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(String);

/// One `[[routes]]` entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Which topics.
    pub topic: Pattern,
    /// Where they go; at least one, none twice.
    pub to: Vec<Target>,
    /// Whether the messages of one key keep their order.
    pub order: Order,
}

/// One endpoint of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name.
    pub endpoint: String,
    /// How its failed deliveries are tried again, where the route has its own way: the endpoint's with single keys replaced. What
    /// statuses and errors mean is the endpoint's affair.
    pub retry: Option<retry::Policy>,
}

/// In which order the messages of a topic are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they come; a message that fails does not stop those behind it.
    #[default]
    None,
    /// Those of one key in the order of `seq`, one at a time; other keys in parallel. Messages without a key are unordered.
    Key(OnDead),
}

/// What becomes of a key when its first message is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDead {
    /// It waits until the dead letter is replayed or discarded.
    #[default]
    Hold,
    /// It goes on with the next message.
    Continue,
}

/// Two routes that share topics though neither stands for a special case of the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlap<'a> {
    /// The one that stands first, and decides.
    pub early: &'a Route,
    /// The other one.
    pub late: &'a Route,
    /// A topic that both mean.
    pub example: String,
}

/// All routes, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes(Vec<Route>);

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("a topic pattern must not be empty".into());
        }
        let words: Vec<&str> = text.split('.').collect();
        for (position, word) in words.iter().enumerate() {
            match *word {
                "" => {
                    return Err(format!(
                        "topic pattern {text:?} has an empty word between its dots"
                    ));
                }
                "**" if position + 1 < words.len() => {
                    return Err(format!(
                        "topic pattern {text:?}: ** can only be the last word"
                    ));
                }
                "*" | "**" => {}
                word if word.contains('*') => {
                    return Err(format!(
                        "topic pattern {text:?}: * stands for a whole word, {word:?} is not one"
                    ));
                }
                _ => {}
            }
        }
        Ok(Pattern(text.to_owned()))
    }

    /// Whether `topic` is one of those that the pattern means.
    pub fn matches(&self, topic: &str) -> bool {
        let mut words = topic.split('.');
        for want in self.0.split('.') {
            match (want, words.next()) {
                ("**", Some(_)) => return true,
                ("*", Some(_)) => {}
                (want, Some(word)) if want == word => {}
                _ => return false,
            }
        }
        words.next().is_none()
    }

    /// Whether every topic that `other` means is one that this pattern means too.
    pub fn covers(&self, other: &Pattern) -> bool {
        let mut theirs = other.0.split('.');
        for want in self.0.split('.') {
            match (want, theirs.next()) {
                ("**", Some(_)) => return true,
                ("*", Some(word)) if word != "**" => {}
                (want, Some(word)) if want == word => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    /// The topics that both patterns mean, which are those of a pattern again; `None` where there are none.
    fn shared(&self, other: &Pattern) -> Option<Pattern> {
        let mut both: Vec<&str> = Vec::new();
        let (mut ours, mut theirs) = (self.0.split('.'), other.0.split('.'));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some(Pattern(both.join("."))),
                (None, Some(_)) | (Some(_), None) => return None,
                // It stands for all that is left of the other one.
                (Some("**"), Some(word)) => both.extend([word].into_iter().chain(theirs.by_ref())),
                (Some(word), Some("**")) => both.extend([word].into_iter().chain(ours.by_ref())),
                (Some("*"), Some(word)) | (Some(word), Some("*")) => both.push(word),
                (Some(word), Some(same)) if word == same => both.push(word),
                (Some(_), Some(_)) => return None,
            }
        }
    }

    /// A topic that this pattern means, with `word` for each of its wildcards, and `last` of them for `**`.
    fn example(&self, word: &str, last: usize) -> String {
        let words = self.0.split('.').flat_map(|own| match own {
            "*" => vec![word],
            "**" => vec![word; last],
            own => vec![own],
        });
        words.collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Route, Target ===

impl Route {
    /// The names of its endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.to.iter().map(|target| target.endpoint.as_str())
    }
}

impl From<&str> for Target {
    fn from(endpoint: &str) -> Target {
        Target {
            endpoint: endpoint.into(),
            retry: None,
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} →", self.topic)?;
        for (position, endpoint) in self.endpoints().enumerate() {
            let before = if position == 0 { " " } else { ", " };
            write!(f, "{before}{endpoint}")?;
        }
        Ok(())
    }
}

// === impl Order ===

impl Order {
    /// Whether the messages of one key keep their order.
    pub fn is_by_key(self) -> bool {
        match self {
            Order::None => false,
            Order::Key(_) => true,
        }
    }

    /// Whether a dead message closes its key.
    pub fn holds(self) -> bool {
        match self {
            Order::None | Order::Key(OnDead::Continue) => false,
            Order::Key(OnDead::Hold) => true,
        }
    }
}

// === impl Routes ===

impl Routes {
    /// The routes in the order in which they are asked.
    pub fn new(routes: Vec<Route>) -> Routes {
        Routes(routes)
    }

    /// The route of a topic; `None` where none matches: such a message stays where it is.
    pub fn of(&self, topic: &str) -> Option<&Route> {
        self.0.iter().find(|route| route.topic.matches(topic))
    }

    /// Routes that can never be asked, each with the earlier one that takes all its topics.
    pub fn unreachable(&self) -> Vec<(&Route, &Route)> {
        let mut found = Vec::new();
        for (position, late) in self.0.iter().enumerate() {
            if let Some(early) = self.0[..position]
                .iter()
                .find(|early| early.topic.covers(&late.topic))
            {
                found.push((late, early));
            }
        }
        found
    }

    /// Routes that share topics, where neither takes all of the other's: which one was meant to have them is not plain. A
    /// special case that stands before the general one is meant so, and a third route before both can have settled it.
    pub fn overlapping(&self) -> Vec<Overlap<'_>> {
        let (word, longest) = self.foreign_word();
        let mut found = Vec::new();
        for (position, late) in self.0.iter().enumerate() {
            for (before, early) in self.0[..position].iter().enumerate() {
                let Some(shared) = early.topic.shared(&late.topic) else {
                    continue;
                };
                let special = early.topic.covers(&late.topic) || late.topic.covers(&early.topic);
                let mut earlier = self.0[..position].iter();
                let unreachable = earlier.any(|route| route.topic.covers(&late.topic));
                let mut earlier = self.0[..before].iter();
                let settled = earlier.any(|route| route.topic.covers(&shared));
                if special || unreachable || settled {
                    continue;
                }
                // An earlier route may have those of a few words only, so there is one that is not its.
                let decides = |topic: &String| self.of(topic) == Some(early);
                let mut examples = (1..=longest + 1).map(|last| shared.example(&word, last));
                if let Some(example) = examples.find(decides) {
                    found.push(Overlap {
                        early,
                        late,
                        example,
                    });
                }
            }
        }
        found
    }

    /// A word that no pattern names, and the words of the longest pattern.
    fn foreign_word(&self) -> (String, usize) {
        let words = || self.0.iter().map(|route| route.topic.0.split('.'));
        let named =
            |candidate: &String| words().any(|mut words| words.any(|word| word == candidate));
        let mut word = String::from("x");
        while named(&word) {
            word.push('x');
        }
        (word, words().map(Iterator::count).max().unwrap_or(0))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_words() {
        let table = [
            ("order.created", "order.created", true),
            ("order.created", "order.created.eu", false),
            ("order.*", "order.created", true),
            ("order.*", "order", false),
            ("order.*", "order.created.eu", false),
            ("order.*", "orders.created", false),
            ("*.created", "order.created", true),
            ("order.**", "order.created.eu", true),
            ("order.**", "order", false),
            ("**", "anything", true),
            ("**", "any.thing", true),
            ("*", "any.thing", false),
        ];
        for (text, topic, want) in table {
            assert_eq!(pattern(text).matches(topic), want, "{text} {topic}");
        }
    }

    #[test]
    fn malformed_patterns_say_what_is_wrong() {
        for (text, want) in [
            ("", "must not be empty"),
            ("a..b", "empty word"),
            (".a", "empty word"),
            ("**.a", "only be the last word"),
            ("ord*", "whole word"),
            ("a.***", "whole word"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn one_pattern_covers_another() {
        let table = [
            ("**", "order.*", true),
            ("order.*", "order.created", true),
            ("order.*", "order.**", false),
            ("order.**", "order.*", true),
            ("order.**", "order.**", true),
            ("order.created", "order.*", false),
            ("*", "**", false),
        ];
        for (wide, narrow, want) in table {
            assert_eq!(
                pattern(wide).covers(&pattern(narrow)),
                want,
                "{wide} {narrow}"
            );
        }
    }

    #[test]
    fn what_two_patterns_share_is_a_pattern() {
        let table = [
            ("order.*", "*.created", "order.created"),
            ("order.**", "*.created", "order.created"),
            ("order.**", "*.*.eu", "order.*.eu"),
            ("order.**", "*.created.**", "order.created.**"),
            ("**", "a.*.b", "a.*.b"),
            ("a.**", "a.**", "a.**"),
            ("*.**", "a.*", "a.*"),
            ("*", "**", "*"),
            ("order.*", "user.*", ""),
            ("order", "order.**", ""),
            ("*", "*.*", ""),
            ("*.**", "*", ""),
            ("a.b", "*.c", ""),
        ];
        for (one, other, want) in table {
            let want = (!want.is_empty()).then(|| pattern(want));
            assert_eq!(pattern(one).shared(&pattern(other)), want, "{one} {other}");
            assert_eq!(pattern(other).shared(&pattern(one)), want, "{other} {one}");
        }
    }

    #[test]
    fn routes_that_overlap_are_found_with_an_example() {
        // Patterns in order; then what is said: the first of the two, the second, and a topic of both.
        let table: [(&[&str], &[&str]); 14] = [
            (
                &["order.*", "*.created"],
                &["order.* *.created order.created"],
            ),
            (
                &["*.created", "order.*"],
                &["*.created order.* order.created"],
            ),
            // A special case before the general one is meant so.
            (&["order.created", "order.*", "**"], &[]),
            (&["order.*", "user.*"], &[]),
            // One that is never asked is another matter.
            (&["order.*", "order.created"], &[]),
            (&["order.*", "**", "*.created"], &[]),
            (&["order.*", "order.*"], &[]),
            // Somebody thought of it.
            (&["order.created", "order.*", "*.created"], &[]),
            (
                &["*.*", "order.**", "*.created.**"],
                &[
                    "order.** *.created.** order.created.x",
                    "*.* order.** order.x",
                ],
            ),
            (&["order.**", "*.*.eu"], &["order.** *.*.eu order.x.eu"]),
            (&["x.**", "*.xx.**"], &["x.** *.xx.** x.xx.xxx"]),
            // The third has the topics of three words; a longer one is left.
            (
                &["a.*.*", "a.**", "*.b.**"],
                &["a.** *.b.** a.b.x.x", "a.*.* *.b.** a.b.x"],
            ),
            (&["a.*", "*.b", "*.c"], &["a.* *.b a.b", "a.* *.c a.c"]),
            (&[], &[]),
        ];
        for (patterns, want) in table {
            let route = |text: &&str| Route {
                topic: pattern(text),
                to: vec!["e".into()],
                order: Order::None,
            };
            let routes = Routes::new(patterns.iter().map(route).collect());
            let mut said: Vec<String> = Vec::new();
            for Overlap {
                early,
                late,
                example,
            } in routes.overlapping()
            {
                assert_eq!(routes.of(&example), Some(early), "{patterns:?} {example}");
                assert!(late.topic.matches(&example), "{patterns:?} {example}");
                said.push(format!("{} {} {example}", early.topic, late.topic));
            }
            said.sort();
            let mut want = want.to_vec();
            want.sort_unstable();
            assert_eq!(said, want, "{patterns:?}");
        }
    }

    #[test]
    fn the_first_route_that_matches_decides() {
        let route = |topic: &str, to: &str| Route {
            topic: pattern(topic),
            to: vec![to.into()],
            order: Order::None,
        };
        let routes = Routes::new(vec![
            route("order.created", "audit"),
            route("order.*", "billing"),
            route("order.paid", "never"),
        ]);
        let to = |topic| routes.of(topic).and_then(|route| route.endpoints().next());
        assert_eq!(to("order.created"), Some("audit"));
        assert_eq!(to("order.paid"), Some("billing"));
        assert_eq!(to("user.created"), None);
        let unreachable: Vec<_> = routes
            .unreachable()
            .iter()
            .map(|(late, _)| late.to_string())
            .collect();
        assert_eq!(unreachable, ["order.paid → never"]);
    }
}
