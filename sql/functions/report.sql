-- Tells the circuit breaker of an endpoint what a relay saw since it reported last. All relays see one breaker: its state is
-- in the endpoint's row, written here about once a second per relay and by the claim that lets probes through.
--
-- closed:    failures and successes are counted in a window that decays (each count halves in p_window / 2), so that no
--            bucket boundary hides a burst. With at least p_minimum of them, and p_ratio of them failures, it opens.
-- open:      nothing is claimed until breaker_until. Each opening in a row doubles the pause, up to p_cap.
-- half_open: claims let p_probes through. A success closes it, a failure opens it again.
-- closed again, the number in flight grows over p_ramp: a receiver that just came back is not met by all at once.
--
-- p_failures are connection errors, time-outs and 5xx; a 4xx is an answer of a receiver that lives. Durations in seconds.
-- Returns the state and for how many seconds it stays open.
CREATE OR REPLACE FUNCTION outbox.report(
    p_endpoint text, p_successes double precision, p_failures double precision,
    p_ratio double precision, p_minimum integer, p_window double precision,
    p_pause double precision, p_cap double precision,
    OUT state text, OUT open_for double precision
)
LANGUAGE plpgsql AS $$
DECLARE
    v_endpoint outbox.endpoints;
    v_now      timestamptz;
    v_keep     double precision;
    v_ok       double precision;
    v_failed   double precision;
    v_openings integer;   -- in a row: those that followed a recovery by less than ten pauses
BEGIN
    SELECT * INTO v_endpoint FROM outbox.endpoints e WHERE e.endpoint = p_endpoint FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    v_now := clock_timestamp();
    state := v_endpoint.breaker;
    v_keep := coalesce(power(0.5, greatest(extract(epoch FROM v_now - v_endpoint.counted_at)::double precision, 0)
                                  / (p_window / 2)), 0);
    v_ok := v_endpoint.successes * v_keep + p_successes;
    v_failed := v_endpoint.failures * v_keep + p_failures;
    v_openings := CASE WHEN state = 'closed' AND v_now > v_endpoint.closed_at + make_interval(secs => 10 * p_pause)
                       THEN 0 ELSE v_endpoint.openings END;

    IF state = 'half_open' AND p_successes > 0 AND p_failures = 0 THEN
        state := 'closed';
        UPDATE outbox.endpoints e
           SET breaker = 'closed', breaker_until = NULL, closed_at = v_now, successes = 0, failures = 0, counted_at = v_now
         WHERE e.endpoint = p_endpoint;
    ELSIF (state = 'half_open' AND p_failures > 0)
       OR (state = 'closed' AND v_ok + v_failed >= p_minimum AND v_failed >= p_ratio * (v_ok + v_failed)) THEN
        state := 'open';
        open_for := least(p_cap, p_pause * power(2, least(v_openings, 30)));
        UPDATE outbox.endpoints e
           SET breaker = 'open', breaker_until = v_now + make_interval(secs => open_for),
               openings = v_openings + 1, successes = 0, failures = 0, counted_at = v_now
         WHERE e.endpoint = p_endpoint;
    ELSE
        UPDATE outbox.endpoints e
           SET successes = v_ok, failures = v_failed, counted_at = v_now, openings = v_openings
         WHERE e.endpoint = p_endpoint;
        IF state = 'open' THEN
            open_for := greatest(extract(epoch FROM v_endpoint.breaker_until - v_now)::double precision, 0);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.report IS 'Private. Tells the circuit breaker of an endpoint what a relay saw.';
