//! What must hold in every state, and in the end.

use stateright::Property;

use super::state::{MESSAGES, Row, Rules, State};

/// What must hold, and what must be possible for the rest to mean anything.
pub(crate) fn invariants() -> Vec<Property<Rules>> {
    vec![
        Property::always("a row has one lease at most", |_, state: &State| {
            (0..MESSAGES).all(|id| {
                state
                    .leases
                    .iter()
                    .filter(|lease| lease.ids.contains(&id))
                    .count()
                    <= 1
            })
        }),
        Property::always("what left the table was accepted", |_, state: &State| {
            state.rows.iter().enumerate().all(|(id, row)| match row {
                Row::Delivered { .. } => state.accepted.iter().any(|(accepted, _)| *accepted == id),
                Row::Uncommitted | Row::Pending { .. } | Row::Dead { .. } => true,
            })
        }),
        Property::always(
            "nothing that is not committed is sent",
            |_, state: &State| {
                state
                    .accepted
                    .iter()
                    .all(|(id, _)| state.rows[*id] != Row::Uncommitted)
            },
        ),
        Property::always(
            "a key's messages are accepted in their order",
            |_, state: &State| {
                let place = |id: usize| {
                    state
                        .accepted
                        .iter()
                        .position(|(accepted, _)| *accepted == id)
                };
                (1..MESSAGES).all(|id| match (place(id - 1), place(id)) {
                    (_, None) => true,
                    (Some(before), Some(after)) => before < after || state.died[id - 1],
                    (None, Some(_)) => state.died[id - 1],
                })
            },
        ),
        Property::always(
            "a late answer does not eat a replayed message",
            |_, state: &State| !state.eaten,
        ),
        Property::always(
            "no request is started without its lease",
            |_, state: &State| !state.stolen,
        ),
        Property::always("a message has all its tries", |_, state: &State| {
            !state.cheated
        }),
        Property::sometimes("all is delivered", |_, state: &State| {
            state
                .rows
                .iter()
                .all(|row| matches!(row, Row::Delivered { .. }))
        }),
        Property::sometimes("a message is repeated", |_, state: &State| state.repeated),
        Property::eventually("nothing is left pending or leased", |_, state: &State| {
            let ended = |row: &Row| matches!(row, Row::Delivered { .. } | Row::Dead { .. });
            state.rows.iter().all(ended) && state.leases.is_empty()
        }),
    ]
}
