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
