//! A claim that starts at the floors of the last one misses nothing that a later claim would have to find again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use outbox_relay::{
    message::{Lane, Settlement},
    store::{Claim, Claimed, Floors, Registration},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use crate::{
    outbox::{LANE, Outbox, take, verdict},
    support::rows::way,
};

#[tokio::test]
async fn a_row_that_commits_late_is_found_by_a_sweep() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    let late = outbox.database.connect().await;
    late.batch_execute("begin; insert into outbox.messages (topic) values ('t')")
        .await
        .unwrap();
    outbox.insert("null, null::timestamptz").await;
    let claimed = outbox.claim(&me, &take(10)).await;
    assert_eq!(outbox.seqs(&claimed.lease.unwrap().ids).await, [2]);
    late.batch_execute("commit").await.unwrap();

    let above = Claim {
        floors: claimed.floors.unwrap(),
        ..take(10)
    };
    assert!(above.floors.ready >= 2);
    let claimed = outbox.claim(&me, &above).await;
    assert!(claimed.lease.is_none() && claimed.dry);
    let sweep = Claim {
        floors: Floors {
            lease: claimed.floors.unwrap().lease,
            ..Floors::default()
        },
        ..take(10)
    };
    let lease = outbox.lease(&me, &sweep).await;
    assert_eq!(outbox.seqs(&lease.ids).await, [1]);
}

#[tokio::test]
async fn the_floor_of_leases_is_the_oldest_that_lives() {
    let outbox = Outbox::new().await;
    let me = outbox.relay().await;
    outbox
        .run("insert into outbox.messages (topic) select 't' from generate_series(1, 4)")
        .await;
    let mut claim = take(1);
    let mut leases = Vec::new();
    for _ in 0..3 {
        let claimed = outbox.claim(&me, &claim).await;
        claim.floors = claimed.floors.unwrap();
        leases.push(claimed.lease.unwrap());
        assert_eq!(claim.floors.lease, leases[0].id);
    }
    outbox
        .settle_all(&me, &leases[0], Settlement::Delivered)
        .await;
    outbox
        .settle_all(&me, &leases[1], Settlement::Delivered)
        .await;
    let claimed = outbox.claim(&me, &claim).await;
    assert_eq!(claimed.floors.unwrap().lease, leases[2].id);
}

/// A row as the model sees it.
#[derive(Debug)]
struct Row {
    id: Uuid,
    seq: i64,
    key: Option<String>,
    due: bool,
    live: bool,
    suspect: bool,
}

/// One lane with random rows, and what is known of it from outside.
struct World<'a> {
    outbox: &'a Outbox,
    lane: Lane,
    in_order: bool,
    rows: Vec<Row>,
    leased: HashSet<Uuid>,
    leases: BTreeMap<i64, (usize, Vec<Uuid>)>,
    delivered: Vec<Uuid>,
    open_keys: BTreeSet<String>,
}

impl<'a> World<'a> {
    async fn new(outbox: &'a Outbox, seed: u64, in_order: bool, rng: &mut StdRng) -> World<'a> {
        let lane = Lane {
            topic: format!("{seed}.{in_order}"),
            ..LANE.clone()
        };
        outbox.store.add_lanes(&[way(&lane)]).await.unwrap();
        let (rows, keys) = (rng.random_range(1..120), rng.random_range(1..12));
        let suspicious = if seed.is_multiple_of(2) { 0.0 } else { 0.1 };
        outbox
            .client
            .batch_execute(&format!("select setseed({})", rng.random_range(-1.0..1.0)))
            .await
            .unwrap();
        // Few due times, so that many rows share one; some wait, some were tried, some are scheduled.
        let rows = outbox
            .client
            .query(
                "with r as materialized (
                     select n, floor(random() * $3)::int as key, random() as kind, floor(random() * 3)::int as late,
                            random() < $4 as suspect, floor(random() * 100)::int as size
                       from generate_series(1, $2::int) n)
                 insert into outbox.messages (topic, key, due_at, attempts, lost, body)
                 select $1, case when key > 0 then 'k' || key end,
                        case when suspect or kind < 0.4 then date_trunc('day', now()) - interval '1 day' * late
                             when kind < 0.6 then date_trunc('day', now()) + interval '2 days' end,
                        (kind between 0.3 and 0.5)::int, case when suspect then 2 else 0 end, decode(repeat('00', size), 'hex')
                   from r order by n
                 returning id, seq, key, coalesce(due_at <= now(), true), coalesce(due_at <= now(), true) or attempts + lost > 0, lost > 1",
                &[&lane.topic, &rows, &f64::from(keys), &suspicious],
            )
            .await
            .unwrap();
        let rows = rows
            .iter()
            .map(|row| Row {
                id: row.get(0),
                seq: row.get(1),
                key: row.get(2),
                due: row.get(3),
                live: row.get(4),
                suspect: row.get(5),
            })
            .collect();
        World {
            outbox,
            lane,
            in_order,
            rows,
            leased: HashSet::new(),
            leases: BTreeMap::new(),
            delivered: Vec::new(),
            open_keys: BTreeSet::new(),
        }
    }

    /// One claim with random limits; checks what it took against the rules.
    async fn claim(
        &mut self,
        relays: &[Registration],
        who: usize,
        floors: &mut Floors,
        rng: &mut StdRng,
    ) -> Claimed {
        let open_keys: Vec<String> = self.open_keys.iter().cloned().collect();
        let claim = Claim {
            lane: &self.lane,
            in_order: self.in_order,
            bytes: rng.random_range(1..2000),
            chain: rng.random_range(1..5),
            floors: floors.clone(),
            open_keys: &open_keys,
            ..take(rng.random_range(1..20))
        };
        let claimed = self.outbox.claim(&relays[who], &claim).await;
        *floors = claimed.floors.clone().unwrap();
        let closed = self.closed();
        let alone = claimed
            .lease
            .as_ref()
            .is_some_and(|lease| lease.ids.len() == 1);
        let mut taken: HashMap<&str, Vec<i64>> = HashMap::new();
        for id in claimed.lease.iter().flat_map(|lease| &lease.ids) {
            let row = self.rows.iter().find(|row| row.id == *id).unwrap();
            assert!(row.due, "{row:?} is not due");
            assert!(!self.leased.contains(id), "{row:?} is leased");
            assert!(!row.suspect || alone, "{row:?} is not alone");
            if let Some(key) = &row.key {
                taken.entry(key).or_default().push(row.seq);
            }
        }
        if self.in_order {
            for (key, mut seqs) in taken {
                assert!(!closed.contains(key), "{key} is closed");
                seqs.sort_unstable();
                let first: Vec<i64> = self
                    .live(key)
                    .iter()
                    .take(seqs.len())
                    .map(|row| row.seq)
                    .collect();
                assert_eq!(seqs, first, "{key}");
            }
        }
        if let Some(lease) = &claimed.lease {
            self.leased.extend(&lease.ids);
            self.leases.insert(lease.id, (who, lease.ids.clone()));
        }
        if claimed.dry {
            self.open_keys.clear();
        }
        claimed
    }

    /// The live rows of a key that are not delivered, by `seq`.
    fn live(&self, key: &str) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| {
                row.key.as_deref() == Some(key) && row.live && !self.delivered.contains(&row.id)
            })
            .collect();
        rows.sort_by_key(|row| row.seq);
        rows
    }

    fn closed(&self) -> HashSet<String> {
        let leased = self.rows.iter().filter(|row| self.leased.contains(&row.id));
        leased.filter_map(|row| row.key.clone()).collect()
    }

    /// What could be leased just now and isn't; suspects apart, of which a relay has one at a time.
    fn overlooked(&self) -> Vec<&Row> {
        let closed = self.closed();
        let free = |row: &&Row| {
            row.due
                && !row.suspect
                && !self.leased.contains(&row.id)
                && !self.delivered.contains(&row.id)
        };
        let open = |row: &&Row| match &row.key {
            Some(key) if self.in_order => !closed.contains(key) && self.live(key)[0].id == row.id,
            Some(_) | None => true,
        };
        self.rows.iter().filter(free).filter(open).collect()
    }

    /// Delivers a random part of one lease (or, if they are to go `again`, lets them fail), and notes the keys that this opens.
    async fn settle(&mut self, relays: &[Registration], again: bool, rng: &mut StdRng) {
        let nth = rng.random_range(0..self.leases.len());
        let (&lease, (who, ids)) = self.leases.iter_mut().nth(nth).unwrap();
        let (who, ids) = (*who, {
            // A relay delivers the rows of one key in order: a prefix of them.
            ids.sort_by_key(|id| self.rows.iter().find(|row| row.id == *id).unwrap().seq);
            let count = rng.random_range(1..=ids.len());
            ids.drain(..count).collect::<Vec<Uuid>>()
        });
        let settlement = match again {
            true => Settlement::Retry(Duration::ZERO),
            false => Settlement::Delivered,
        };
        let settles: Vec<_> = ids
            .iter()
            .map(|id| verdict(lease, *id, settlement))
            .collect();
        let report = self.outbox.settle(&relays[who], &settles).await;
        assert_eq!(report.settled.len(), ids.len());
        for id in ids {
            self.leased.remove(&id);
            let key = self
                .rows
                .iter()
                .find(|row| row.id == id)
                .unwrap()
                .key
                .clone();
            self.open_keys.extend(key);
            if !again {
                self.delivered.push(id);
            }
        }
        self.leases.retain(|_, (_, ids)| !ids.is_empty());
    }
}

async fn floors_lose_nothing(in_order: bool) {
    let outbox = Outbox::new().await;
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(&outbox, seed, in_order, &mut rng).await;
        let relays = [outbox.relay().await, outbox.relay().await];
        // Somebody else has some of it already.
        world
            .claim(&relays, 1, &mut Floors::default(), &mut rng)
            .await;
        let mut floors = Floors::default();
        let (mut steps, mut took, mut idle) = (0, false, 0);
        while idle < 2 {
            steps += 1;
            assert!(steps < 2000, "seed {seed}: no end");
            let claimed = world.claim(&relays, 0, &mut floors, &mut rng).await;
            took |= claimed.lease.is_some();
            if !claimed.dry {
                // That says: ask again at once.
                continue;
            }
            let overlooked = world.overlooked();
            assert!(
                overlooked.is_empty(),
                "seed {seed}: {overlooked:?} below {floors:?}"
            );
            idle = if took || !world.leases.is_empty() {
                0
            } else {
                idle + 1
            };
            took = false;
            for _ in 0..rng.random_range(1..4) {
                if !world.leases.is_empty() {
                    world.settle(&relays, false, &mut rng).await;
                }
            }
            if world.rows.iter().any(|row| row.suspect) {
                // Suspects that were left out while another was on its way are found by sweeps only.
                floors = Floors {
                    lease: floors.lease,
                    ..Floors::default()
                };
            }
        }
        // All that is left waits for its time, or behind something that does.
        for row in &world.rows {
            if !row.due || world.delivered.contains(&row.id) {
                continue;
            }
            let key = row.key.as_deref().filter(|_| in_order);
            let waits = |key| {
                let live = world.live(key);
                live.iter().any(|first| first.seq < row.seq && !first.due)
            };
            assert!(
                key.is_some_and(waits),
                "seed {seed}: {row:?} was never delivered"
            );
        }
    }
}

/// Two relays claim by turns, from the floors of any claim of theirs or from the bottom: each claim checks that it took no row
/// that is leased, although a claim from floors does not look at leases that lie below them.
async fn nothing_is_leased_twice(in_order: bool) {
    let outbox = Outbox::new().await;
    for seed in 100..115 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(&outbox, seed, in_order, &mut rng).await;
        let relays = [outbox.relay().await, outbox.relay().await];
        let mut known = [vec![Floors::default()], vec![Floors::default()]];
        for _ in 0..120 {
            let who = rng.random_range(0..2);
            let back = rng.random_range(0..known[who].len().min(4));
            let latest = &known[who][known[who].len() - 1];
            // Where leases start is exact as long as it only grows: that alone is never an old one.
            let mut floors = Floors {
                lease: latest.lease,
                ..known[who][known[who].len() - 1 - back].clone()
            };
            if rng.random_bool(0.2) {
                floors = Floors {
                    lease: floors.lease,
                    ..Floors::default()
                };
            }
            world.claim(&relays, who, &mut floors, &mut rng).await;
            known[who].push(floors);
            if !world.leases.is_empty() && rng.random_bool(0.5) {
                let again = !in_order && rng.random_bool(0.5);
                world.settle(&relays, again, &mut rng).await;
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_leased_twice_without_order() {
    nothing_is_leased_twice(false).await;
}

#[tokio::test]
async fn nothing_is_leased_twice_in_order() {
    nothing_is_leased_twice(true).await;
}

#[tokio::test]
async fn floors_lose_nothing_without_order() {
    floors_lose_nothing(false).await;
}

#[tokio::test]
async fn floors_lose_nothing_in_order() {
    floors_lose_nothing(true).await;
}
