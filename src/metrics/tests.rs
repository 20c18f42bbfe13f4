use super::*;

/// Something of everything.
fn full() -> Metrics {
    let metrics = Metrics::new();
    metrics.attempt("shop", Class::Success);
    metrics.request("shop", Duration::from_millis(30));
    metrics.attempt("shop", Class::Unavailable);
    metrics.request("shop", Duration::from_secs(90));
    metrics.delivered("shop", Duration::from_secs(2));
    metrics.settled("shop", "delivered");
    metrics.held([("shop", 3)].into_iter());
    metrics.claim("claimed", 7, Duration::from_millis(2));
    metrics.claim("empty", 0, Duration::from_millis(1));
    metrics.settle(7, Duration::from_millis(3));
    metrics.failed("settle");
    metrics.history_failed();
    metrics.reaped(5);
    metrics.rang(2);
    metrics.sampled(&Sample {
        endpoints: vec![Standing {
            endpoint: "shop".into(),
            paused: true,
            breaker: 2,
            leased: 4,
        }],
        backlogs: vec![Backlog {
            endpoint: String::new(),
            messages: 8,
            oldest: 1.5,
        }],
        dead: vec![("shop".into(), "rejected".into(), 6)],
        relays: 2,
        horizon: 0.25,
        bell: true,
    });
    metrics
}

#[test]
fn a_request_is_on_its_way_until_it_ends_in_any_way() {
    let metrics = Metrics::new();
    let says = |requests: u8| {
        let line = format!("outbox_requests_in_flight{{endpoint=\"shop\"}} {requests}\n");
        metrics.text(Format::Prometheus).contains(&line)
    };
    let one = metrics.on_the_way("shop");
    let two = metrics.clone().on_the_way("shop");
    assert!(says(2));
    drop(one);
    assert!(says(1));
    drop(two);
    assert!(says(0));
}

#[test]
fn what_is_counted_is_said() {
    let text = full().text(Format::Prometheus);
    for line in [
        "# TYPE outbox_attempts_total counter",
        "outbox_attempts_total{endpoint=\"shop\",outcome=\"success\"} 1",
        "outbox_attempts_total{endpoint=\"shop\",outcome=\"unavailable\"} 1",
        "outbox_settlements_total{endpoint=\"shop\",settlement=\"delivered\"} 1",
        "# TYPE outbox_delivery_lag_seconds histogram",
        "outbox_delivery_lag_seconds_bucket{le=\"1.0\",endpoint=\"shop\"} 0",
        "outbox_delivery_lag_seconds_bucket{le=\"2.5\",endpoint=\"shop\"} 1",
        "outbox_request_duration_seconds_count{endpoint=\"shop\"} 2",
        "outbox_held_messages{endpoint=\"shop\"} 3",
        "outbox_claims_total{state=\"claimed\"} 1",
        "outbox_claim_messages_sum 7.0",
        "outbox_claim_duration_seconds_count 2",
        "outbox_settle_messages_count 1",
        "outbox_call_failures_total{call=\"settle\"} 1",
        "outbox_history_failures_total 1",
        "outbox_reaped_relays_total 1",
        "outbox_reaped_messages_total 5",
        "outbox_doorbell_rings_total 2",
        "outbox_database_samples_total 1",
        "outbox_database_backlog_messages{endpoint=\"\"} 8",
        "outbox_database_oldest_due_seconds{endpoint=\"\"} 1.5",
        "outbox_database_dead_letters{endpoint=\"shop\",reason=\"rejected\"} 6",
        "outbox_database_endpoint_paused{endpoint=\"shop\"} 1",
        "outbox_database_endpoint_breaker{endpoint=\"shop\"} 2",
        "outbox_database_leased_messages{endpoint=\"shop\"} 4",
        "outbox_database_relays 2",
        "outbox_database_horizon_age_seconds 0.25",
        "outbox_database_doorbell 1",
    ] {
        assert!(text.lines().any(|is| is == line), "{line}\n{text}");
    }
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
}

#[test]
fn both_formats_have_the_same_samples() {
    let metrics = full();
    let samples = |format| -> Vec<String> {
        let text = metrics.text(format);
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(samples(Format::Prometheus), samples(Format::OpenMetrics));
    let text = metrics.text(Format::OpenMetrics);
    assert!(
        text.ends_with("# EOF\n") && text.contains("# TYPE outbox_attempts counter"),
        "{text}"
    );
}

#[test]
fn what_is_gone_from_the_database_is_forgotten() {
    let metrics = full();
    metrics.sampled(&Sample::default());
    let text = metrics.text(Format::Prometheus);
    assert!(!text.contains("outbox_database_dead_letters{"), "{text}");
    assert!(
        !text.contains("outbox_database_backlog_messages{"),
        "{text}"
    );
    assert!(
        text.contains("outbox_attempts_total{endpoint=\"shop\""),
        "{text}"
    );
    metrics.held([("other", 1)].into_iter());
    assert!(
        !metrics
            .text(Format::Prometheus)
            .contains("outbox_held_messages{endpoint=\"shop\"")
    );
}

#[test]
fn whoever_asks_gets_the_format_that_it_reads() {
    for (accept, format) in [
        ("", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/plain;version=0.0.4", Format::Prometheus),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2",
            Format::OpenMetrics,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}
