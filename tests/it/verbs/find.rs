//! What operators look for: lists, a page at a time, and the history.
use std::{collections::HashSet, time::Duration};

use outbox_relay::{
    message::{Reason, Settlement},
    store::{Filter, Search, Settle, State},
};
use uuid::Uuid;

use super::{HOUR, bury, deliver};
use crate::outbox::{Outbox, take, verdict};

/// All pages of a list, joined.
async fn pages(outbox: &Outbox, state: State, filter: &Filter, limit: i32) -> Vec<Uuid> {
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let page = outbox
            .store
            .list(state, filter, after.as_ref(), limit)
            .await
            .unwrap();
        ids.extend(page.iter().map(|row| row.id));
        match page.last() {
            Some(last) if page.len() == usize::try_from(limit).unwrap() => {
                after = Some(last.place.clone());
            }
            _ => return ids,
        }
    }
}

#[tokio::test]
async fn pages_of_a_list_join_to_all_of_it() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let rows = "insert into outbox.messages (topic, key, payload, due_at)
                select (array['b.x', 'a', 'b.y'])[1 + n % 3], 'k' || n % 4, to_json(n), case when n % 2 = 0 then now() + make_interval(secs => n % 7) - interval '3 s' end
                  from generate_series(1, 40) n";
    outbox.run(rows).await;
    outbox.run("insert into outbox.messages (topic, due_at) values ('a', 'infinity'), ('a', '-infinity')").await;
    let by_lane =
        "select id from outbox.messages order by due_at is not null, topic, endpoint, due_at, seq";
    let want: Vec<Uuid> = outbox.all(by_lane, &[]).await;
    for limit in [1, 7, 100] {
        assert_eq!(
            pages(&outbox, State::Pending, &Filter::default(), limit).await,
            want,
            "{limit}"
        );
    }
    let filter = Filter {
        topic: Some("b.*".into()),
        key: Some("k1".into()),
        ..Filter::default()
    };
    let want: Vec<Uuid> = outbox
        .all("select id from outbox.messages where topic like 'b.%' and key = 'k1' order by due_at is not null, topic, endpoint, due_at, seq", &[])
        .await;
    assert!(!want.is_empty());
    assert_eq!(pages(&outbox, State::Pending, &filter, 3).await, want);

    outbox
        .run("update outbox.messages set topic = 't', key = null, due_at = null")
        .await;
    deliver(&outbox, &me).await;
    let want: Vec<Uuid> = outbox
        .all(
            "select id from outbox.delivered order by delivered_at desc, seq desc",
            &[],
        )
        .await;
    assert_eq!(want.len(), 42);
    for limit in [1, 7, 100] {
        assert_eq!(
            pages(&outbox, State::Delivered, &Filter::default(), limit).await,
            want
        );
    }
    for _ in 0..10 {
        outbox.insert("null, null::timestamptz").await;
    }
    bury(&outbox, &me, false).await;
    let want: Vec<Uuid> = outbox
        .all(
            "select id from outbox.dead_letters order by died_at desc, seq desc",
            &[],
        )
        .await;
    assert_eq!(want.len(), 10);
    for limit in [1, 3, 100] {
        assert_eq!(
            pages(&outbox, State::Dead, &Filter::default(), limit).await,
            want
        );
    }
    let none = Filter {
        until: Some("ago 1 hour".into()),
        ..Filter::default()
    };
    for state in [State::Pending, State::Dead, State::Delivered] {
        assert!(
            outbox
                .store
                .list(state, &none, None, 10)
                .await
                .unwrap()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn a_failure_is_found_by_a_word_of_its_error() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    for _ in 0..20 {
        outbox.insert("'k', null::timestamptz").await;
    }
    let lease = outbox.lease(&me, &take(20)).await;
    let settles: Vec<Settle> = lease
        .ids
        .iter()
        .enumerate()
        .map(|(n, id)| {
            let way = match n % 4 {
                0 => Settlement::Delivered,
                1 => Settlement::Retry(HOUR),
                2 => Settlement::Dead(Reason::Rejected),
                _ => Settlement::PutOff(HOUR),
            };
            let mut settle = verdict(lease.id, *id, way);
            if let (7, Some(outcome)) = (n, &mut settle.outcome) {
                outcome.error = Some("status 429: the Warehouse is closed".into());
                outcome.duration = Duration::from_secs(7);
            }
            settle
        })
        .collect();
    outbox.settle(&me, &settles).await;
    let find = async |search: Search| {
        let mut ids = Vec::new();
        let mut after = None;
        loop {
            let page = outbox
                .store
                .history(&search, after.as_ref(), 3)
                .await
                .unwrap();
            ids.extend(page.iter().map(|line| line.id));
            match page.last() {
                Some(last) if page.len() == 3 => after = Some(last.place.clone()),
                _ => return ids,
            }
        }
    };
    let some = |text: &str| Some(text.to_owned());
    let all = find(Search::default()).await;
    assert_eq!(
        (all.len(), all.iter().collect::<HashSet<_>>().len()),
        (20, 20)
    );
    let one = [lease.ids[7]];
    assert_eq!(
        find(Search {
            error: some("warehouse"),
            ..Search::default()
        })
        .await,
        one
    );
    assert_eq!(
        find(Search {
            slower: Some(5.0),
            ..Search::default()
        })
        .await,
        one
    );
    assert_eq!(
        find(Search {
            id: Some(one[0]),
            ..Search::default()
        })
        .await,
        one
    );
    for (search, many) in [
        (
            Search {
                attempt: Some(1),
                ..Search::default()
            },
            20,
        ),
        (
            Search {
                attempt: Some(2),
                failures: true,
                ..Search::default()
            },
            0,
        ),
        (
            Search {
                failures: true,
                ..Search::default()
            },
            15,
        ),
        (
            Search {
                settlement: some("dead"),
                ..Search::default()
            },
            5,
        ),
        (
            Search {
                settlement: some("delivered"),
                ..Search::default()
            },
            5,
        ),
        (
            Search {
                outcome: some("rejected"),
                ..Search::default()
            },
            5,
        ),
        (
            Search {
                status: Some(503),
                ..Search::default()
            },
            5,
        ),
        (
            Search {
                topic: some("t"),
                endpoint: some("e"),
                key: some("k"),
                relay: some("a relay"),
                ..Search::default()
            },
            20,
        ),
        (
            Search {
                key: some("other"),
                ..Search::default()
            },
            0,
        ),
        (
            Search {
                since: some("ago 1 hour"),
                ..Search::default()
            },
            20,
        ),
        (
            Search {
                until: some("ago 1 hour"),
                ..Search::default()
            },
            0,
        ),
    ] {
        assert_eq!(find(search.clone()).await.len(), many, "{search:?}");
    }
}
