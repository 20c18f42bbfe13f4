use super::*;

const POLL: Duration = Duration::from_millis(200);
const COST: Duration = Duration::from_millis(1);

fn lane(topic: &str) -> Lane {
    Lane {
        topic: topic.into(),
        endpoint: String::new(),
    }
}

fn found(topic: &str, ready: bool, due: Option<u64>) -> Found {
    Found {
        lane: lane(topic),
        ready,
        due: due.map(Duration::from_secs),
    }
}

fn claimed(state: ClaimState, taken: bool, dry: bool, seq: i64) -> Claimed {
    let lease = taken.then(|| crate::message::Lease {
        id: 1,
        lane: lane("a"),
        endpoint: "e".into(),
        ids: Vec::new(),
    });
    let floors = Some(Floors {
        ready: seq,
        waiting: None,
        lease: 7,
    });
    Claimed {
        state,
        brought: taken,
        lease,
        deliveries: Vec::new(),
        floors,
        dry,
        next_due: None,
        left_keys: Vec::new(),
        others: false,
        breaker: None,
        endpoint_floor: None,
    }
}

fn lanes(topics: &[&str], now: Instant) -> Lanes {
    let mut lanes = Lanes::new(POLL);
    let fresh = lanes.found(
        topics
            .iter()
            .map(|topic| found(topic, true, None))
            .collect(),
        None,
        now,
    );
    assert_eq!(fresh.len(), topics.len());
    lanes
}

fn tell(lanes: &mut Lanes, claimed: &Claimed, sweep: bool, now: Instant) {
    lanes.claimed(&lane("a"), claimed, sweep, COST, now, 0.5);
}

/// Where the next claim of lane `a` starts: the floor of fresh rows, and whether it is one of a sweep.
fn start(lanes: &mut Lanes, now: Instant) -> (i64, bool) {
    let start = lanes.start(&lane("a"), 10, now);
    (start.floors.ready, start.sweep)
}

#[test]
fn lanes_take_turns() {
    let now = Instant::now();
    let mut lanes = lanes(&["a", "b", "c"], now);
    let turns: Vec<String> = (0..5)
        .map(|_| lanes.next(now, |_, _| true).unwrap().topic)
        .collect();
    assert_eq!(turns, ["a", "b", "c", "a", "b"]);
    assert_eq!(
        lanes.next(now, |_, lane| lane.topic == "a").unwrap().topic,
        "a"
    );
    assert_eq!(lanes.next(now, |_, _| false), None);
}

#[test]
fn claims_go_on_at_the_floors_and_a_sweep_never_puts_them_back() {
    let mut now = Instant::now();
    let mut lanes = lanes(&["a"], now);
    let (_, sweep) = start(&mut lanes, now);
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, false, 50),
        sweep,
        now,
    );
    // Under load a sweep is due at every poll. It finds late rows, far below the floors.
    now += POLL;
    let (mut starts, mut at_floors, mut swept) =
        (Vec::new(), [60, 70, 80].iter(), [10, 20, 75].iter());
    for _ in 0..6 {
        let (at, sweep) = start(&mut lanes, now);
        starts.push((at, sweep));
        let reached = *if sweep {
            swept.next()
        } else {
            at_floors.next()
        }
        .unwrap();
        tell(
            &mut lanes,
            &claimed(ClaimState::Claimed, true, false, reached),
            sweep,
            now,
        );
    }
    assert_eq!(
        starts,
        [
            (50, false),
            (0, true),
            (60, false),
            (10, true),
            (70, false),
            (20, true)
        ]
    );
    // It reached 75 and the floors 80: the next window meets them.
    assert_eq!(start(&mut lanes, now), (80, false));
    tell(
        &mut lanes,
        &claimed(ClaimState::Empty, false, false, 90),
        false,
        now,
    );
    assert_eq!(start(&mut lanes, now), (75, true));
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, false, 95),
        true,
        now,
    );
    assert_eq!(start(&mut lanes, now), (95, false));
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, false, 99),
        false,
        now,
    );
    assert_eq!(start(&mut lanes, now), (99, false), "it is over");
}

#[test]
fn a_dry_lane_is_swept_once_and_then_left_to_the_skip_scan() {
    let mut now = Instant::now();
    let mut lanes = lanes(&["a"], now);
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, false, 50),
        false,
        now,
    );
    tell(
        &mut lanes,
        &claimed(ClaimState::Empty, false, true, 50),
        false,
        now,
    );
    assert_eq!(start(&mut lanes, now), (0, true), "dry: a sweep, at once");
    tell(
        &mut lanes,
        &claimed(ClaimState::Empty, false, true, 50),
        true,
        now,
    );
    for _ in 0..20 {
        let Some(look) = lanes.next_look(|_, _| true) else {
            return;
        };
        now = now.max(look);
        let (_, sweep) = start(&mut lanes, now);
        tell(
            &mut lanes,
            &claimed(ClaimState::Empty, false, true, 50),
            sweep,
            now,
        );
    }
    panic!("still asked: {:?}", lanes.next_look(|_, _| true));
}

#[test]
fn what_a_sweep_does_in_vain_keeps_to_its_share() {
    let start_at = Instant::now();
    let mut lanes = lanes(&["a"], start_at);
    let (mut now, mut sweeps, mut seq) = (start_at, 0_u32, 1000);
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, false, seq),
        false,
        now,
    );
    while now < start_at + Duration::from_secs(10) {
        let (at, sweep) = start(&mut lanes, now);
        now += COST;
        if sweep {
            // A window of rows of closed keys.
            sweeps += 1;
            tell(
                &mut lanes,
                &claimed(ClaimState::Empty, false, false, at + 10),
                true,
                now,
            );
        } else {
            seq += 100;
            tell(
                &mut lanes,
                &claimed(ClaimState::Claimed, true, false, seq),
                false,
                now,
            );
        }
    }
    assert!((300..=500).contains(&sweeps), "{sweeps} of 10,000 claims");
}

#[test]
fn a_sweep_that_brings_something_goes_on_at_once() {
    let mut now = Instant::now();
    let mut lanes = lanes(&["a"], now);
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, true, 5000),
        false,
        now,
    );
    let mut brought = 0;
    for _ in 0..10 {
        let (at, sweep) = start(&mut lanes, now);
        now += COST;
        if sweep {
            brought += 1;
            tell(
                &mut lanes,
                &claimed(ClaimState::Claimed, true, false, at + 100),
                true,
                now,
            );
        } else {
            tell(
                &mut lanes,
                &claimed(ClaimState::Empty, false, true, 5000),
                false,
                now,
            );
        }
    }
    assert!(brought >= 8, "{brought}");
}

#[test]
fn a_lane_of_a_closed_endpoint_stays_due_and_is_not_asked_without_room() {
    let now = Instant::now();
    let mut lanes = lanes(&["a", "b"], now);
    tell(
        &mut lanes,
        &claimed(ClaimState::Paused, false, false, 0),
        true,
        now,
    );
    assert_eq!(lanes.next_look(|_, lane| lane.topic == "a"), Some(now));
    assert_eq!(
        lanes.next(now, |_, lane| lane.topic != "a").unwrap().topic,
        "b"
    );
    assert_eq!(lanes.next(now, |_, _| false), None);
}

#[test]
fn a_row_that_is_due_later_is_looked_for_then() {
    let now = Instant::now();
    let mut lanes = Lanes::new(POLL);
    lanes.found(vec![found("a", false, Some(3))], None, now);
    assert_eq!(
        lanes.next_look(|_, _| true),
        Some(now + Duration::from_secs(3))
    );
    lanes.due_in(&lane("a"), Duration::from_secs(1), now);
    assert_eq!(
        lanes.next_look(|_, _| true),
        Some(now + Duration::from_secs(1))
    );
    lanes.due_in(&lane("a"), Duration::MAX, now);
    assert_eq!(
        lanes.next_look(|_, _| true),
        Some(now + Duration::from_secs(1))
    );
}

#[test]
fn a_key_that_was_opened_is_asked_for_once() {
    let now = Instant::now();
    let mut lanes = lanes(&["a"], now);
    tell(
        &mut lanes,
        &claimed(ClaimState::Empty, false, true, 50),
        false,
        now,
    );
    lanes.open(&lane("a"), "k".into(), now);
    lanes.open(&lane("a"), "k".into(), now);
    let mut asked = Vec::new();
    for _ in 0..4 {
        let start = lanes.start(&lane("a"), 10, now);
        asked.extend(start.open_keys);
        tell(
            &mut lanes,
            &claimed(ClaimState::Empty, false, true, 50),
            start.sweep,
            now,
        );
    }
    assert_eq!(asked, ["k"]);
}

#[test]
fn a_lane_is_closed_after_two_sweeps_in_vain_until_something_is_brought() {
    let mut now = Instant::now();
    let mut lanes = lanes(&["a"], now);
    let vain = claimed(ClaimState::Empty, false, true, 50);
    for sweeps in 1..=3 {
        now += POLL;
        tell(&mut lanes, &vain, false, now);
        tell(&mut lanes, &vain, true, now);
        assert_eq!(lanes.is_closed(&lane("a")), sweeps >= 2, "{sweeps}");
    }
    tell(
        &mut lanes,
        &claimed(ClaimState::Claimed, true, true, 60),
        false,
        now,
    );
    assert!(!lanes.is_closed(&lane("a")));
    tell(&mut lanes, &vain, true, now);
    assert!(!lanes.is_closed(&lane("a")));
}
