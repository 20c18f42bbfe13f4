//! `[[sagas]]` and `[[retries]]`: work of several steps, for sagas whose rows have no plan of their own.

use std::collections::BTreeMap;

use super::{DAY, MILLISECOND, actions, policy};
use crate::{
    config::{reader::Section, units},
    delivery::Endpoint,
    relay::Sagas,
    retry,
    saga::{OnExhausted, Plan, Planned, name, path},
};

const NAME: &str = r#"a name such as "order""#;

/// Plans whose steps go to these endpoints.
pub(crate) fn sagas(root: &Section<'_>, endpoints: &[Endpoint]) -> Sagas {
    let policies = policies(root);
    let mut plans: Vec<Plan> = Vec::new();
    for entry in root.sections("sagas").into_iter().flatten() {
        let name = entry.required("name", NAME, |text| {
            if plans.iter().any(|plan| plan.name == text) {
                return Err(format!("there is another saga {}", units::quoted(text)));
            }
            name(text)
        });
        let sections = entry.sections("steps").unwrap_or_default();
        if sections.is_empty() || sections.len() > 50 {
            entry.problem(
                "steps",
                "must be 1 to 50 [[sagas.steps]], each with name, to and do".into(),
            );
        }
        let steps: Vec<Option<Planned>> = sections
            .iter()
            .map(|section| step(section, endpoints, &policies))
            .collect();
        let steps: Option<Vec<Planned>> = steps.into_iter().collect();
        let (Some(name), Some(steps)) = (name, steps) else {
            continue;
        };
        let plan = Plan { name, steps };
        if let Some((position, key, wrong)) = plan.refusal() {
            sections[position].problem(key, wrong);
        }
        plans.push(plan);
    }
    Sagas { plans, policies }
}

/// `[[retries]]`, each with the keys of an endpoint's `retry`.
fn policies(root: &Section<'_>) -> BTreeMap<String, retry::Policy> {
    let mut policies = BTreeMap::new();
    for entry in root.sections("retries").into_iter().flatten() {
        let name = entry.required("name", r#"a name such as "payments""#, |text| {
            if policies.contains_key(text) {
                return Err(format!("there is another policy {}", units::quoted(text)));
            }
            name(text)
        });
        let policy = policy(&entry, actions(&entry));
        policies.extend(name.map(|name| (name, policy)));
    }
    policies
}

fn step(
    section: &Section<'_>,
    endpoints: &[Endpoint],
    policies: &BTreeMap<String, retry::Policy>,
) -> Option<Planned> {
    let name = section.required("name", r#"a name such as "reserve""#, name);
    let to = section.required("to", "the name of an endpoint", |text| {
        let known = endpoints.iter().any(|endpoint| endpoint.name == text);
        // Where there are no endpoints at all, that is the problem.
        if known || endpoints.is_empty() {
            return Ok(text.to_owned());
        }
        let names = endpoints
            .iter()
            .map(|endpoint| units::quoted(&endpoint.name));
        let names: Vec<String> = names.collect();
        let shown = units::quoted(text);
        Err(format!(
            "there is no endpoint {shown}, only {}",
            names.join(", ")
        ))
    });
    const PATH: &str = r#"a path such as "/reserve""#;
    let forward = section.required("do", PATH, path);
    let undo = section.optional("undo", PATH, path);
    let policy = |key| {
        section.optional(key, "the name of one of [[retries]]", |text| {
            if policies.contains_key(text) {
                return Ok(text.to_owned());
            }
            Err(format!(
                "there are no [[retries]] with the name {}",
                units::quoted(text)
            ))
        })
    };
    let retry = policy("retry");
    let undo_retry = policy("undo_retry");
    let duration = |key| {
        let given = section.duration(key, MILLISECOND, MILLISECOND..=365 * DAY);
        section.has(key).then_some(given)
    };
    let both = [OnExhausted::Park, OnExhausted::Compensate].map(|what| (what.as_str(), what));
    Some(Planned {
        timeout: duration("timeout"),
        lapse: duration("lapse"),
        pivot: section.flag("pivot", false),
        is_async: section.flag("async", false),
        on_exhausted: section.choice("on_exhausted", "park", &both),
        retry,
        undo_retry,
        undo,
        name: name?,
        to: to?,
        r#do: forward?,
    })
}
