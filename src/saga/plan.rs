//! The plan of a saga, as a configuration has it. What a plan in a row may be, `sql/functions/check_plan.sql` says; a test holds the
//! two together.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// The steps of all sagas of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The sagas' name.
    pub name: String,
    /// At least one; each has another name.
    pub steps: Vec<Planned>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// The endpoint.
    pub to: String,
    /// The path that is asked to do it, added to the endpoint's URL.
    pub r#do: String,
    /// The path that is asked to undo it; `None`: there is nothing to undo.
    pub undo: Option<String>,
    /// Once it is done there is no way back.
    pub pivot: bool,
    /// Another time-out than the endpoint's.
    pub timeout: Option<Duration>,
    /// Which retry policy takes the endpoint's place.
    pub retry: Option<String>,
    /// The same for its undo; `None`: as for `do`.
    pub undo_retry: Option<String>,
    /// What follows when its attempts are used up.
    pub on_exhausted: OnExhausted,
    /// 202 means: not yet.
    pub is_async: bool,
    /// How long until the same is sent again after a 202.
    pub lapse: Option<Duration>,
}

/// What follows when the attempts of a step are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// The saga waits for an operator.
    #[default]
    Park,
    /// It goes back.
    Compensate,
}

impl OnExhausted {
    /// The word in SQL, JSON and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            OnExhausted::Park => "park",
            OnExhausted::Compensate => "compensate",
        }
    }
}

impl Plan {
    /// As the column `steps` has it.
    pub fn to_json(&self) -> Value {
        self.steps.iter().map(Planned::to_json).collect()
    }

    /// What is wrong with it: the step, the key and the words; `None`: nothing.
    pub fn refusal(&self) -> Option<(usize, &'static str, String)> {
        let mut pivot: Option<&str> = None;
        for (position, step) in self.steps.iter().enumerate() {
            let wrong = |key, message| Some((position, key, message));
            let name = &*step.name;
            if self.steps[..position]
                .iter()
                .any(|other| other.name == name)
            {
                return wrong("name", format!("an earlier step is called {name}, too"));
            }
            if let (Some(pivot), true) = (pivot, step.pivot) {
                return wrong("pivot", format!("there is one already, {pivot}"));
            }
            if let (Some(pivot), Some(_)) = (pivot, &step.undo) {
                return wrong(
                    "undo",
                    format!("after the pivot {pivot} there is no way back"),
                );
            }
            let last = step.pivot && step.undo.is_none();
            if step.on_exhausted == OnExhausted::Compensate && (pivot.is_some() || last) {
                let pivot = pivot.unwrap_or(name);
                return wrong(
                    "on_exhausted",
                    format!("from the pivot {pivot} on there is no way back"),
                );
            }
            if step.undo_retry.is_some() && step.undo.is_none() {
                return wrong("undo_retry", "the step has no undo".into());
            }
            if step.lapse.is_some() && !step.is_async {
                return wrong("lapse", "the step is not async".into());
            }
            if step.pivot {
                pivot = Some(name);
            }
        }
        None
    }
}

impl Planned {
    fn to_json(&self) -> Value {
        let mut step = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                step.insert(key.into(), value);
            }
        };
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let seconds = |time: Option<Duration>| time.map(|time| json!(time.as_secs_f64()));
        put("name", Some(json!(self.name)));
        put("to", Some(json!(self.to)));
        put("do", Some(json!(self.r#do)));
        put("undo", text(&self.undo));
        put("pivot", self.pivot.then_some(json!(true)));
        put("timeout", seconds(self.timeout));
        put("retry", text(&self.retry));
        put("undo_retry", text(&self.undo_retry));
        let on_exhausted = json!(self.on_exhausted.as_str());
        put(
            "on_exhausted",
            (self.on_exhausted != OnExhausted::default()).then_some(on_exhausted),
        );
        put("async", self.is_async.then_some(json!(true)));
        put("lapse", seconds(self.lapse));
        Value::Object(step)
    }
}

/// Whether a name of a saga or of a step is right; the error says what it must be.
pub fn name(text: &str) -> Result<String, String> {
    let first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !first || text.len() > 64 || !text.bytes().all(right) {
        return Err("must be 1 to 64 letters, digits, - _ . and a letter or digit first".into());
    }
    Ok(text.to_owned())
}

/// Whether a path can be added to a URL; the error says what it must be.
pub fn path(text: &str) -> Result<String, String> {
    let wrong = || {
        "must be a path that begins with /, as it stands in a URL, without . and .. and without a query".to_owned()
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~!$&'()*+,;=:@%-".contains(&byte);
    if !text.starts_with('/') || text.len() > 1000 || !text.bytes().all(legal) {
        return Err(wrong());
    }
    let mut escapes = text.split('%').skip(1);
    let is_hex = |escape: &str| {
        escape.len() >= 2 && escape.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
    };
    if !escapes.all(is_hex) {
        return Err(wrong());
    }
    let plain = text.to_ascii_lowercase().replace("%2e", ".");
    if plain
        .split('/')
        .any(|segment| matches!(segment, "." | ".."))
    {
        return Err(wrong());
    }
    Ok(text.to_owned())
}
