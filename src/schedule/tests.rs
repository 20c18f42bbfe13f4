//! Tables of fire times, the days when clocks change among them.
use super::*;

fn times(cron: &str, zone: &str) -> Times {
    Times::new(cron, Times::zone(zone).unwrap()).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// All of a day and a bit, in UTC: `29 01:30`.
fn fires(cron: &str, zone: &str, from: &str, until: &str) -> Vec<String> {
    let all = times(cron, zone).between(at(from), at(until), 1000);
    let shown = |time: &Timestamp| time.strftime("%d %H:%M").to_string();
    all.iter().map(shown).collect()
}

/// Berlin: on 29 March 2026 02:00 +01:00 becomes 03:00 +02:00, at 01:00 UTC; on 25 October 03:00 +02:00 becomes 02:00 +01:00, at
/// 01:00 UTC. New York: on 8 March 02:00 -05:00 becomes 03:00 -04:00, at 07:00 UTC; on 1 November 02:00 -04:00 becomes 01:00 -05:00,
/// at 06:00 UTC.
#[test]
fn what_is_to_happen_once_a_day_does_so_on_the_days_when_clocks_change() {
    const BERLIN: &str = "Europe/Berlin";
    const NEW_YORK: &str = "America/New_York";
    let table: &[(&str, &str, [&str; 2], &[&str])] = &[
        // The gap: the day before, the day itself, the day after.
        (
            "30 2 * * *",
            BERLIN,
            ["2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z"],
            &["28 01:30", "29 01:00", "30 00:30"],
        ),
        (
            "0 2 * * *",
            BERLIN,
            ["2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z"],
            &["28 01:00", "29 01:00", "30 00:00"],
        ),
        (
            "0 3 * * *",
            BERLIN,
            ["2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z"],
            &["28 02:00", "29 01:00", "30 01:00"],
        ),
        (
            "30 2 * * *",
            NEW_YORK,
            ["2026-03-07T05:00:00Z", "2026-03-10T04:00:00Z"],
            &["07 07:30", "08 07:00", "09 06:30"],
        ),
        // What comes twice.
        (
            "30 2 * * *",
            BERLIN,
            ["2026-10-23T22:00:00Z", "2026-10-26T23:00:00Z"],
            &["24 00:30", "25 00:30", "26 01:30"],
        ),
        (
            "0 3 * * *",
            BERLIN,
            ["2026-10-23T22:00:00Z", "2026-10-26T23:00:00Z"],
            &["24 01:00", "25 02:00", "26 02:00"],
        ),
        (
            "30 1 * * *",
            NEW_YORK,
            ["2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z"],
            &["31 05:30", "01 05:30", "02 06:30"],
        ),
        (
            "0 1 * * *",
            NEW_YORK,
            ["2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z"],
            &["31 05:00", "01 05:00", "02 06:00"],
        ),
        // Several hours are intervals: what is not there is left out, what comes twice fires twice.
        (
            "30 1,2,3 29 3 *",
            BERLIN,
            ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"],
            &["29 00:30", "29 01:30"],
        ),
        (
            "30 1,2,3 25 10 *",
            BERLIN,
            ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"],
            &["24 23:30", "25 00:30", "25 01:30", "25 02:30"],
        ),
        // Where nothing happens.
        (
            "30 2 * * *",
            "UTC",
            ["2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z"],
            &["28 02:30", "29 02:30"],
        ),
        (
            "30 2 * * *",
            "Asia/Kolkata",
            ["2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z"],
            &["28 21:00", "29 21:00"],
        ),
    ];
    for (cron, zone, [from, until], want) in table {
        assert_eq!(
            fires(cron, zone, from, until),
            *want,
            "{cron} {zone} {from}"
        );
    }
}

#[test]
fn intervals_go_on_as_time_passes() {
    // 23 hours have 23 of them, and 25 have 25.
    for (zone, from, until, hours) in [
        (
            "Europe/Berlin",
            "2026-03-28T22:59:59Z",
            "2026-03-29T21:59:59Z",
            23,
        ),
        (
            "Europe/Berlin",
            "2026-10-24T21:59:59Z",
            "2026-10-25T22:59:59Z",
            25,
        ),
        (
            "America/New_York",
            "2026-03-08T04:59:59Z",
            "2026-03-09T03:59:59Z",
            23,
        ),
        (
            "America/New_York",
            "2026-11-01T03:59:59Z",
            "2026-11-02T04:59:59Z",
            25,
        ),
    ] {
        for (cron, each) in [("0 * * * *", 1), ("*/15 * * * *", 4)] {
            let all = fires(cron, zone, from, until);
            assert_eq!(all.len(), hours * each, "{cron} {zone} {from}: {all:?}");
        }
    }
}

/// From wherever one looks, the next is the same.
#[test]
fn the_next_one_does_not_depend_on_from_where_it_is_looked_for() {
    for (zone, from, until) in [
        (
            "Europe/Berlin",
            "2026-03-28T20:00:00Z",
            "2026-03-29T08:00:00Z",
        ),
        (
            "Europe/Berlin",
            "2026-10-24T20:00:00Z",
            "2026-10-25T08:00:00Z",
        ),
        (
            "America/New_York",
            "2026-03-08T00:00:00Z",
            "2026-03-08T12:00:00Z",
        ),
        (
            "America/New_York",
            "2026-11-01T00:00:00Z",
            "2026-11-01T12:00:00Z",
        ),
        (
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            "2026-10-04T00:00:00Z",
        ),
    ] {
        for cron in ["30 2 * * *", "15 1,2 * * *", "*/20 * * * *", "0 2 * * SUN"] {
            let times = times(cron, zone);
            let all = times.between(at(from), at(until), 1000);
            let (mut from, until) = (at(from), at(until));
            while from < until {
                let want = all.iter().find(|time| **time > from);
                let is = times.next(from).filter(|time| *time <= until);
                assert_eq!(is.as_ref(), want, "{cron} {zone} from {from}");
                from += SignedDuration::from_secs(7 * 60 + 11);
            }
        }
    }
}

#[test]
fn a_part_of_a_second_changes_nothing() {
    let times = times("0 9 * * *", "UTC");
    for (after, next) in [
        ("2026-01-01T08:59:59.999999Z", "2026-01-01T09:00:00Z"),
        ("2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"),
        ("2026-01-01T09:00:00.000001Z", "2026-01-02T09:00:00Z"),
    ] {
        assert_eq!(times.next(at(after)), Some(at(next)), "{after}");
    }
}

#[test]
fn what_was_missed_is_left_out_or_made_up_for() {
    let schedule = |cron: &str, missed| Schedule {
        name: "s".into(),
        times: times(cron, "UTC"),
        missed,
        topic: "t".into(),
        key: None,
        kind: None,
        payload: None,
        headers: Value::Null,
    };
    let day = |time: &str| at(&format!("2026-01-01T{time}Z"));
    let hourly = "0 * * * *";
    type Decided = Option<(&'static str, &'static [&'static str])>;
    let table: &[(&str, Missed, &str, &str, Decided)] = &[
        (hourly, Missed::Once, "08:00:00", "08:59:59", None),
        (hourly, Missed::Once, "08:00:00.5", "08:00:00.9", None),
        // In time.
        (
            hourly,
            Missed::Skip,
            "08:00:00",
            "09:00:00",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::Skip,
            "08:00:00",
            "09:01:00",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::Once,
            "08:00:00",
            "09:00:01",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::All(5),
            "08:00:00",
            "09:00:01",
            Some(("09:00:00", &["09:00:00"])),
        ),
        // Too late.
        (
            hourly,
            Missed::Skip,
            "08:00:00",
            "09:01:01",
            Some(("09:00:00", &[])),
        ),
        (
            hourly,
            Missed::Once,
            "08:00:00",
            "09:01:01",
            Some(("09:00:00", &["09:00:00"])),
        ),
        // Several, the last of which is in time, or not.
        (
            hourly,
            Missed::Skip,
            "05:30:00",
            "09:00:30",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::Skip,
            "05:30:00",
            "09:30:00",
            Some(("09:00:00", &[])),
        ),
        (
            hourly,
            Missed::Once,
            "05:30:00",
            "09:00:30",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::Once,
            "05:30:00",
            "09:30:00",
            Some(("09:00:00", &["09:00:00"])),
        ),
        (
            hourly,
            Missed::All(9),
            "05:30:00",
            "09:30:00",
            Some((
                "09:00:00",
                &["06:00:00", "07:00:00", "08:00:00", "09:00:00"],
            )),
        ),
        (
            hourly,
            Missed::All(2),
            "05:30:00",
            "09:00:30",
            Some(("09:00:00", &["07:00:00", "08:00:00", "09:00:00"])),
        ),
        (
            hourly,
            Missed::All(2),
            "05:30:00",
            "09:30:00",
            Some(("09:00:00", &["08:00:00", "09:00:00"])),
        ),
        // The clock was set back: nothing until it is there again.
        (hourly, Missed::All(2), "09:00:00", "08:30:00", None),
        // Each second of the last minute is in time.
        (
            "*/20 * * * * *",
            Missed::Skip,
            "05:30:00",
            "09:00:05",
            Some(("09:00:00", &["08:59:20", "08:59:40", "09:00:00"])),
        ),
    ];
    for (cron, missed, fired, now, want) in table {
        let due = schedule(cron, *missed).due(day(fired), day(now));
        let want = want.map(|(until, times)| Due {
            until: day(until),
            times: times.iter().map(|time| day(time)).collect(),
        });
        assert_eq!(due, want, "{cron} {missed:?} {fired} {now}");
    }
    // Years of seconds are not counted.
    let each = schedule("* * * * * *", Missed::All(1000));
    let due = each.due(at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    assert_eq!(due.unwrap().times.len(), 1000 + FRESH);
    let leap = schedule("0 0 29 2 *", Missed::All(10));
    let due = leap.due(at("2001-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    assert_eq!(due.unwrap().times.len(), 6);
}

#[test]
fn each_fire_time_of_each_schedule_has_an_id_of_its_own() {
    let mut schedule = Schedule {
        name: "a".into(),
        times: times("@daily", "UTC"),
        missed: Missed::Skip,
        topic: "t".into(),
        key: None,
        kind: None,
        payload: None,
        headers: Value::Null,
    };
    let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
    let id = schedule.id(one);
    assert_eq!(schedule.id(one), id);
    assert_ne!(schedule.id(two), id);
    schedule.name = "b".into();
    assert_ne!(schedule.id(one), id);
}

#[test]
fn an_expression_that_is_none_or_never_comes_is_refused() {
    let utc = TimeZone::UTC;
    for wrong in [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "x",
        "0 0 30 2 *",
        "0 0 0 1 1 * 2020",
    ] {
        assert!(Times::new(wrong, utc.clone()).is_err(), "{wrong}");
    }
    for right in [
        "@daily",
        "0 0 * * MON-FRI",
        "*/5 * * * *",
        "30 0 0 1 1 *",
        "0 0 L * *",
        "0 0 29 2 *",
    ] {
        assert!(Times::new(right, utc.clone()).is_ok(), "{right}");
    }
    for wrong in ["", "Europe/Bonn", "CEST", "+01:00", "Local"] {
        assert!(Times::zone(wrong).is_err(), "{wrong}");
    }
    assert_eq!(
        times("0 9 * * *", "europe/berlin").shown(),
        "0 9 * * * Europe/Berlin"
    );
}
