//! What operators see of sagas, and do to them.

use clap::Subcommand;
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

use super::{
    Database, Failure,
    find::{Page, when},
    text::{self, Colour},
    verbs::{By, answer},
};
use crate::store::{ListedSaga, Mandate, SagaFilter, SagaVerb, Store};

/// So many sagas in one go.
const PIECE: i32 = 200;

#[derive(Debug, Subcommand)]
pub(super) enum Saga {
    /// List sagas, the newest first.
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        page: Page,
        #[command(flatten)]
        database: Database,
    },
    /// Show the whole life of a saga.
    Show {
        /// Its id.
        id: Uuid,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: Database,
    },
    /// Go on with parked sagas: the step that each is at is sent again, with all its attempts.
    Resume {
        #[command(flatten)]
        many: Many,
        /// Under another key: to its participant it is another request.
        #[arg(long)]
        new_key: bool,
    },
    /// Go on with parked sagas without the step that each is at.
    Skip(Many),
    /// Turn sagas back: what was done is undone, the last first.
    Cancel(Many),
    /// Run sagas again from a step, as a new generation: that step and those behind it are sent under new keys.
    Rerun {
        #[command(flatten)]
        many: Many,
        /// From this step on; without it, from the first.
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
        /// This JSON in the place of the input.
        #[arg(long, value_name = "JSON", value_parser = input)]
        input: Option<String>,
    },
}

/// Which sagas are meant: all that is given must fit.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Their name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Their key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Where they stand: `new`, `running`, `compensating`, `parked`, `succeeded` or `compensated`.
    #[arg(long, value_name = "WORD")]
    status: Option<String>,
    /// The step that they are at, or failed at.
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// A part of their error, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Not before this time, or not longer ago (`2h`).
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<String>,
    /// Before this time, or longer ago.
    #[arg(long, value_name = "TIME", value_parser = when)]
    until: Option<String>,
}

/// Which sagas a verb is for.
#[derive(Debug, clap::Args)]
pub(super) struct Many {
    /// These sagas.
    #[arg(value_name = "ID", conflicts_with_all = ["name", "key", "status", "step", "error", "since", "until", "all", "dry_run"])]
    ids: Vec<Uuid>,
    #[command(flatten)]
    which: Which,
    /// All there are, where no filter is given.
    #[arg(long)]
    all: bool,
    /// Count what is meant, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// As JSON: with ids, one object a line for each; of many, one object; with --dry-run, an array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    database: Database,
}

pub(super) async fn saga(saga: Saga) -> Result<(), Failure> {
    match saga {
        Saga::List {
            which,
            page,
            database,
        } => list(&database.open()?, &which.filter(), &page).await,
        Saga::Show { id, json, database } => show(&database.open()?, id, json).await,
        Saga::Resume { many, new_key } => act(&many, SagaVerb::Resume { new_key }).await,
        Saga::Skip(many) => act(&many, SagaVerb::Skip).await,
        Saga::Cancel(many) => act(&many, SagaVerb::Cancel).await,
        Saga::Rerun { many, from, input } => {
            act(&many, SagaVerb::Rerun { step: from, input }).await
        }
    }
}

async fn list(store: &Store, filter: &SagaFilter, page: &Page) -> Result<(), Failure> {
    let sagas = store
        .find_sagas(filter, page.after.as_ref(), page.limit)
        .await?;
    if page.json {
        say!("{}", text::json(&sagas)?);
        return Ok(());
    }
    say!("{:<36} {:<14} {:<12} SAGA", "ID", "AT (UTC)", "STATUS");
    for saga in &sagas {
        print(saga);
    }
    page.next(sagas.len(), sagas.last().map(|saga| &saga.place));
    Ok(())
}

fn print(saga: &ListedSaga) {
    let head = format!(
        "{:<36} {:<14} {:<12} ",
        saga.id,
        text::moment(&saga.created_at),
        saga.status
    );
    let mut parts = vec![format!("{} {}", saga.name, saga.key)];
    if saga.finished_at.is_none() {
        let step = saga.step.as_deref().unwrap_or("no plan");
        let undo = if saga.phase == "undo" { "undo " } else { "" };
        parts.push(format!("at {undo}{step}"));
    }
    parts.extend(saga.error.clone());
    // The status's column.
    let colour = colour(&saga.status).map(|colour| (52, 64, colour));
    text::row(&head, &parts.join("  "), colour);
}

fn colour(status: &str) -> Option<Colour> {
    match status {
        "succeeded" => Some(Colour::Green),
        "compensating" | "compensated" => Some(Colour::Yellow),
        "parked" => Some(Colour::Red),
        _ => None,
    }
}

async fn show(store: &Store, id: Uuid, json: bool) -> Result<(), Failure> {
    let Some(life) = store.show_saga(id).await? else {
        return Err(Failure::Other(format!("there is no saga {id}")));
    };
    if json {
        say!("{}", life.get());
        return Ok(());
    }
    let saga: Value = serde_json::from_str(life.get())
        .map_err(|error| Failure::Other(format!("saga {id}: {error}")))?;
    let word = |key: &str| saga[key].as_str().unwrap_or_default();
    say!("saga {id}: {} {}", word("name"), word("key"));
    let step = match word("step") {
        "" => String::new(),
        step if saga["finished_at"].is_null() => format!(", at {} {step}", word("phase")),
        _ => String::new(),
    };
    let error = match word("error") {
        "" => String::new(),
        error => format!(": {}", text::flat(error)),
    };
    say!("{}{step}{error}", word("status"));
    for why in saga["why"].as_array().into_iter().flatten() {
        say!("  {}", text::flat(why["why"].as_str().unwrap_or_default()));
    }
    #[derive(serde::Deserialize)]
    struct Values {
        input: Option<Box<RawValue>>,
        outputs: Option<Box<RawValue>>,
    }
    // As they were written.
    let values: Result<Values, _> = serde_json::from_str(life.get());
    if let Ok(Values { input, outputs }) = values {
        let shown = |value: Option<Box<RawValue>>| {
            value.map_or_else(|| "null".into(), |value| text::flat(value.get()))
        };
        text::wrapped("input    ", &shown(input), None);
        text::wrapped("outputs  ", &shown(outputs), None);
    }
    say!("\n{:<14} {:<16} {:<12} WHAT", "AT (UTC)", "STEP", "EVENT");
    for line in saga["trail"].as_array().into_iter().flatten() {
        let word = |key: &str| line[key].as_str().unwrap_or_default();
        let undo = if word("phase") == "undo" { "undo " } else { "" };
        let step = format!("{undo}{}", word("step"));
        let head = format!(
            "{:<14} {:<16} {:<12} ",
            text::moment(word("at")),
            text::cut(&step, 16),
            text::cut(word("event"), 12)
        );
        let said = ["error", "why", "by", "message"].map(|key| word(key).to_owned());
        let said: Vec<String> = said.into_iter().filter(|said| !said.is_empty()).collect();
        text::wrapped(&head, &said.join("  "), None);
    }
    let attempts = saga["attempts"].as_array().map_or(0, Vec::len);
    say!(
        "\n{attempts} lines of history: `outbox-relay history ID` with the id of a step's message"
    );
    Ok(())
}

async fn act(many: &Many, verb: SagaVerb) -> Result<(), Failure> {
    let store = many.database.open()?;
    let mandate = many.by.mandate();
    if many.ids.is_empty() {
        return act_on_many(&store, many, &verb, mandate).await;
    }
    for id in &many.ids {
        let status = store.act_on_saga(*id, &verb, mandate).await?;
        if many.json {
            answer(&json!({ "id": id, "status": status }))?;
            continue;
        }
        say!("{id}: {}", said(&verb, &status));
    }
    Ok(())
}

fn said(verb: &SagaVerb, status: &str) -> String {
    match (verb, status) {
        (SagaVerb::Cancel, "running") => "goes back when what is in flight has ended".into(),
        (_, status) => status.into(),
    }
}

async fn act_on_many(
    store: &Store,
    many: &Many,
    verb: &SagaVerb,
    mandate: Mandate<'_>,
) -> Result<(), Failure> {
    let mut filter = many.which.filter();
    if filter.is_empty() && !many.all {
        return Err(Failure::Usage(
            "say which: ids, a filter such as --name or --step, or --all".into(),
        ));
    }
    if let SagaVerb::Resume { .. } | SagaVerb::Skip = verb {
        // Others are not meant.
        filter.status.get_or_insert_with(|| "parked".into());
    }
    let kinds = store.matching_sagas(&filter).await?;
    if many.json && many.dry_run {
        say!("{}", text::json(&kinds)?);
        return Ok(());
    }
    for kind in kinds.iter().filter(|_| !many.json) {
        let step = kind.step.as_deref().unwrap_or("no plan");
        let (sagas, name, status, phase) = (kind.sagas, &kind.name, &kind.status, &kind.phase);
        say!("{sagas:>8}  {name}  {status}, {phase} {step}");
    }
    if many.dry_run {
        let sagas: i64 = kinds.iter().map(|kind| kind.sagas).sum();
        say!("{sagas} sagas are meant: nothing was done");
        return Ok(());
    }
    let (mut done, mut refused, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let acted = store
            .act_on_sagas(&filter, verb, mandate, after.as_ref(), PIECE)
            .await?;
        for one in acted.refused.iter().filter(|_| !many.json) {
            say!("{}", text::flat(&one.error));
        }
        done.extend(acted.done);
        refused.extend(acted.refused);
        let Some(next) = acted.next else { break };
        after = Some(next);
    }
    let (all, not) = (done.len(), refused.len());
    match many.json {
        true => answer(&json!({ "done": done, "refused": refused, "next": null }))?,
        false => say!("{}: {all} sagas, {not} refused", verb.as_str()),
    }
    match (all, not) {
        (0, 0) => Err(Failure::Other(
            "no saga is meant by that: nothing was done".into(),
        )),
        _ => Ok(()),
    }
}

fn input(text: &str) -> Result<String, String> {
    serde_json::from_str::<Value>(text)
        .map(|_| text.to_owned())
        .map_err(|error| format!("a JSON value: {error}"))
}

// === impl Which ===

impl Which {
    fn filter(&self) -> SagaFilter {
        SagaFilter {
            name: self.name.clone(),
            key: self.key.clone(),
            status: self.status.clone(),
            step: self.step.clone(),
            error: self.error.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
        }
    }
}
