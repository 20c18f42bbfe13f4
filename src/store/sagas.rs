//! Work of several steps, in the database's words. The functions in `sql/functions` of the same names say what each verb means.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Error, Mandate, Parameter, Store, find, sql};

/// What was done for sagas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tended {
    /// Sagas that have begun.
    pub begun: i32,
    /// Sagas that go back now.
    pub back: i32,
}

/// Which sagas are meant; `None` lets all pass, and all that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SagaFilter {
    /// The name.
    pub name: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// `new`, `running`, `compensating`, `parked`, `succeeded` or `compensated`.
    pub status: Option<String>,
    /// The step that it is at, or failed at.
    pub step: Option<String>,
    /// A part of its error, in upper or lower case.
    pub error: Option<String>,
    /// When it was inserted, in the form of [`super::Filter::since`].
    pub since: Option<String>,
    /// Not after.
    pub until: Option<String>,
}

/// A saga in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ListedSaga {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: String,
    /// Where it stands: see [`SagaFilter::status`].
    pub status: String,
    /// The step that it is at; `None`: it has no plan yet.
    pub step: Option<String>,
    /// `do` or `undo`.
    pub phase: String,
    /// The step that failed last.
    pub failed_step: Option<String>,
    /// What that said, or why it goes back.
    pub error: Option<String>,
    /// How often it was run again.
    pub generation: i32,
    /// When it was inserted.
    pub created_at: String,
    /// When it goes back, if it is not past its pivot.
    pub deadline_at: Option<String>,
    /// When it was over.
    pub finished_at: Option<String>,
    /// Its place: the next page begins after it.
    pub place: Value,
}

/// Sagas of one kind that a filter means.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct MatchingSagas {
    /// Their name.
    pub name: String,
    /// Where they stand.
    pub status: String,
    /// The step that they are at.
    pub step: Option<String>,
    /// `do` or `undo`.
    pub phase: String,
    /// How many.
    pub sagas: i64,
}

/// What became of many sagas, a page of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Acted {
    /// Those of which it was wanted with success.
    pub done: Vec<Uuid>,
    /// Those of which it can't be had, and why.
    pub refused: Vec<Refused>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<Value>,
}

/// A saga of which something can't be had.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Its id.
    pub id: Uuid,
    /// Why not.
    pub error: String,
}

/// What an operator wants of a saga.
#[derive(Clone, Debug, PartialEq)]
pub enum SagaVerb {
    /// A parked one goes on with the step that it is at.
    Resume {
        /// Under another key: to its participant it is another request.
        new_key: bool,
    },
    /// A parked one goes on without the step that it is at.
    Skip,
    /// It goes back.
    Cancel,
    /// It runs again, as a new generation.
    Rerun {
        /// From this step; `None` = the first.
        step: Option<String>,
        /// With this JSON in the place of its input.
        input: Option<String>,
    },
}

impl Store {
    /// Begins sagas that are new, by their own plan or the one of `plans` (an object of arrays of steps by name), and turns back those
    /// that are to go back; of each no more than `limit`.
    pub async fn tend_sagas(&self, plans: &Value, limit: i32) -> Result<Tended, Error> {
        let plans = plans.to_string();
        let parameters: [Parameter<'_>; 2] = [(&plans, Type::TEXT), (&limit, Type::INT4)];
        let row = self.one(sql::TEND_SAGAS, &parameters).await?;
        Ok(Tended {
            begun: row.get("begun"),
            back: row.get("back"),
        })
    }

    /// Forgets sagas that have been over for longer than this, so many at most. Returns how many there were.
    pub async fn forget_sagas(&self, keep: Duration, limit: i32) -> Result<i32, Error> {
        let keep = keep.as_secs_f64();
        let parameters: [Parameter<'_>; 2] = [(&keep, Type::FLOAT8), (&limit, Type::INT4)];
        let row = self.one(sql::FORGET_SAGAS, &parameters).await?;
        Ok(row.get("forgotten"))
    }

    /// Takes in what the participant of an asynchronous step says later. Returns the status that its saga has then, or `busy`: the request
    /// is on its way once more; `None`: no step waits for this token.
    pub async fn answer_step(
        &self,
        token: &str,
        refused: bool,
        output: Option<&str>,
        error: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let parameters: [Parameter<'_>; 4] = [
            (&token, Type::TEXT),
            (&refused, Type::BOOL),
            (&output, Type::TEXT),
            (&error, Type::TEXT),
        ];
        let row = self.one(sql::ANSWER_STEP, &parameters).await?;
        Ok(row.get("status"))
    }

    /// A page of sagas, newest first, after the place of the last row of the page before.
    pub async fn find_sagas(
        &self,
        filter: &SagaFilter,
        after: Option<&Value>,
        limit: i32,
    ) -> Result<Vec<ListedSaga>, Error> {
        let mut parameters = filter.parameters();
        parameters.push((&after, Type::JSON));
        parameters.push((&limit, Type::INT4));
        let rows = self.call(sql::FIND_SAGAS, &parameters).await?;
        find::read(sql::FIND_SAGAS, &rows)
    }

    /// How many sagas a filter means, by name, status and step.
    pub async fn matching_sagas(&self, filter: &SagaFilter) -> Result<Vec<MatchingSagas>, Error> {
        let rows = self.call(sql::MATCHING_SAGAS, &filter.parameters()).await?;
        find::read(sql::MATCHING_SAGAS, &rows)
    }

    /// Does what an operator wants of a page of sagas, each in a transaction of its own: one of which it can't be had does not stand in
    /// the way of the others.
    pub async fn act_on_sagas(
        &self,
        filter: &SagaFilter,
        verb: &SagaVerb,
        mandate: Mandate<'_>,
        after: Option<&Value>,
        limit: i32,
    ) -> Result<Acted, Error> {
        let mut sagas = self.find_sagas(filter, after, limit).await?;
        let full = i32::try_from(sagas.len()).is_ok_and(|rows| rows == limit);
        let mut acted = Acted::default();
        for saga in &sagas {
            match self.act_on_saga(saga.id, verb, mandate).await {
                Ok(_) => acted.done.push(saga.id),
                Err(Error::Statement {
                    state: Some(state),
                    message,
                    ..
                }) if ["55000", "22023", "P0002"].contains(&state.as_str()) => {
                    acted.refused.push(Refused {
                        id: saga.id,
                        error: message,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        acted.next = sagas.pop().filter(|_| full).map(|last| last.place);
        Ok(acted)
    }

    /// The whole life of a saga, as a JSON object; `None`: there is none of this id.
    pub async fn show_saga(&self, id: Uuid) -> Result<Option<Box<RawValue>>, Error> {
        let row = self.one(sql::SHOW_SAGA, &[(&id, Type::UUID)]).await?;
        find::raw(sql::SHOW_SAGA, row.get("life"))
    }

    /// Does what an operator wants of a saga. Returns what it is then.
    ///
    /// # Errors
    ///
    /// SQLSTATE P0002: there is none of this id; 55000: what is wanted can't be had as it stands.
    pub async fn act_on_saga(
        &self,
        id: Uuid,
        verb: &SagaVerb,
        mandate: Mandate<'_>,
    ) -> Result<String, Error> {
        let statement = match verb {
            SagaVerb::Resume { .. } => sql::RESUME_SAGA,
            SagaVerb::Skip => sql::SKIP_STEP,
            SagaVerb::Cancel => sql::CANCEL_SAGA,
            SagaVerb::Rerun { .. } => sql::RERUN_SAGA,
        };
        let mut parameters: Vec<Parameter<'_>> = vec![(&id, Type::UUID)];
        match verb {
            SagaVerb::Resume { new_key } => parameters.push((new_key, Type::BOOL)),
            SagaVerb::Rerun { step, input } => {
                parameters.push((step, Type::TEXT));
                parameters.push((input, Type::TEXT));
            }
            SagaVerb::Skip | SagaVerb::Cancel => {}
        }
        parameters.push((&mandate.why, Type::TEXT));
        parameters.push((&mandate.by, Type::TEXT));
        let row = self.one(statement, &parameters).await?;
        Ok(match verb {
            SagaVerb::Rerun { .. } => "running".into(),
            SagaVerb::Resume { .. } | SagaVerb::Skip | SagaVerb::Cancel => row.get("status"),
        })
    }
}

// === impl SagaFilter ===

impl SagaFilter {
    /// Whether it lets all pass.
    pub fn is_empty(&self) -> bool {
        *self == SagaFilter::default()
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        let fields = [
            &self.name,
            &self.key,
            &self.status,
            &self.step,
            &self.error,
            &self.since,
            &self.until,
        ];
        fields
            .map(|field| -> Parameter<'_> { (field, Type::TEXT) })
            .into()
    }
}

// === impl SagaVerb ===

impl SagaVerb {
    /// The word in the command line and in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            SagaVerb::Resume { .. } => "resume",
            SagaVerb::Skip => "skip",
            SagaVerb::Cancel => "cancel",
            SagaVerb::Rerun { .. } => "rerun",
        }
    }
}
