//! What of a relay can change while it runs, made so that taking it over can't fail.
//!
//! All that can be wrong with a plan (a URL, a secret's file) is found when it is made, by whoever offers it; a session
//! that takes it over only exchanges values. So a plan is applied whole or not at all.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Config, Relay};
use crate::{
    delivery::{Client, ClientError, Endpoint},
    retry,
    route::Routes,
    store::Records,
};

/// A configuration that is ready to deliver by.
pub struct Plan {
    /// The loop's own settings; name and lease are those of the relay's first plan.
    pub config: Config,
    /// What tells this configuration from another, in `status`.
    pub digest: String,
    /// The destinations.
    pub(super) endpoints: Vec<(Arc<Endpoint>, Client)>,
    /// Which topic goes where.
    pub(super) routes: Routes,
    /// Retry policies that steps of sagas name.
    pub(super) policies: BTreeMap<String, Arc<retry::Policy>>,
    /// The plans of sagas by name, as the database has them.
    pub(super) plans: serde_json::Value,
    /// What is written of what was done.
    pub(super) records: Records,
}

impl Plan {
    /// Prepares every endpoint. Those that the plan `before` has just so keep their connections and tokens.
    ///
    /// # Errors
    ///
    /// The first endpoint that can't be sent to at all.
    pub fn new(relay: Relay, before: Option<&Plan>) -> Result<Plan, ClientError> {
        let known = before.map_or(&[][..], |plan| &plan.endpoints);
        let ready = |endpoint: Endpoint| {
            let same = known.iter().find(|(known, _)| **known == endpoint);
            match same {
                Some(same) => Ok(same.clone()),
                None => Client::new(&endpoint).map(|client| (Arc::new(endpoint), client)),
            }
        };
        Ok(Plan {
            config: relay.config,
            digest: relay.digest,
            endpoints: relay
                .endpoints
                .into_iter()
                .map(ready)
                .collect::<Result<_, _>>()?,
            routes: relay.routes,
            policies: (relay.sagas.policies.into_iter())
                .map(|(name, policy)| (name, Arc::new(policy)))
                .collect(),
            plans: (relay.sagas.plans.iter())
                .map(|plan| (plan.name.clone(), plan.to_json()))
                .collect(),
            records: relay.records,
        })
    }

    /// The names of its endpoints, and how long a request to each may take.
    pub(super) fn timeouts(&self) -> Vec<(&str, Duration)> {
        let endpoints = self.endpoints.iter();
        endpoints
            .map(|(endpoint, _)| (&*endpoint.name, endpoint.timeout))
            .collect()
    }

    /// The names of its endpoints.
    pub(super) fn names(&self) -> Vec<&str> {
        let names = self.endpoints.iter();
        names.map(|(endpoint, _)| &*endpoint.name).collect()
    }

    /// The names of its plans of sagas.
    pub(super) fn sagas(&self) -> Vec<&str> {
        let names = self.plans.as_object().into_iter().flatten();
        names.map(|(name, _)| name.as_str()).collect()
    }
}
