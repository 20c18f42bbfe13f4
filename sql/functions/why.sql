-- Says why a message is not delivered: a sentence for each endpoint that it is bound for, and what became of it where it is not
-- pending any more. For people; it changes nothing and waits for nobody. Who keeps a row locked it can say of sessions that the caller
-- may see: its own user's, or all as a member of pg_read_all_stats.
--
-- Returns endpoint (empty where it is not known), state (the first of what stands in the way: leased, no_relay, no_route, expired,
-- held, behind, retry, scheduled, paused, open, not_before, saturated, throttled, locked; due = nothing does; dead; delivered, replayed under
-- another id, cancelled, discarded = the last that is known of it) and why. No row: no message of this id is known.
CREATE OR REPLACE FUNCTION outbox.why(p_id uuid)
RETURNS TABLE (endpoint text, state text, why text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET intervalstyle = 'postgres'
AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_known boolean := false;
    r       record;
BEGIN
    FOR r IN SELECT o.endpoint, o.state, o.why
               FROM outbox.messages m CROSS JOIN LATERAL outbox.obstacles(m.id, m.endpoint, true) o
              WHERE m.id = p_id AND o.state IS NOT NULL ORDER BY m.endpoint
    LOOP
        v_known := true;
        endpoint := r.endpoint;
        state := r.state;
        why := r.why;
        RETURN NEXT;
    END LOOP;

    FOR r IN SELECT d.endpoint, d.died_at, d.reason, d.attempts, d.last_error, h.key AS holds
               FROM outbox.dead_letters d
               LEFT JOIN outbox.held_keys h
                 ON h.topic = d.topic AND h.lane_endpoint = d.lane_endpoint AND h.key = d.key AND h.id = d.id
              WHERE d.id = p_id ORDER BY d.lane_endpoint
    LOOP
        v_known := true;
        endpoint := r.endpoint;
        state := 'dead';
        why := format('it died %s ago (%s) after %s attempts%s%s', date_trunc('second', v_now - r.died_at), r.reason, r.attempts,
                      coalesce(', the last one: ' || r.last_error, ''),
                      CASE WHEN r.holds IS NOT NULL THEN '; what follows it under its key waits for it' ELSE '' END);
        RETURN NEXT;
    END LOOP;

    -- Of what is neither, the last that the history knows.
    FOR r IN
        SELECT DISTINCT ON (a.endpoint) a.endpoint, a.settlement, a.started_at + a.duration AS at, a.relay, a.reason, a.error
          FROM outbox.attempts a
         WHERE a.id = p_id
           AND (a.settlement IN ('delivered', 'cancelled', 'discarded') OR a.settlement = 'replayed' AND starts_with(a.error, 'as '))
           AND NOT EXISTS (SELECT FROM outbox.messages o WHERE o.id = p_id AND o.endpoint IN ('', a.endpoint))
           AND NOT EXISTS (SELECT FROM outbox.dead_letters o WHERE o.id = p_id AND o.endpoint = a.endpoint)
         ORDER BY a.endpoint, a.started_at DESC
    LOOP
        v_known := true;
        endpoint := r.endpoint;
        state := r.settlement;
        why := CASE r.settlement
            WHEN 'delivered' THEN format('it was delivered %s ago', date_trunc('second', v_now - r.at))
            ELSE format('it was %s%s %s ago by %s%s', r.settlement, CASE WHEN r.settlement = 'replayed' THEN ' ' || r.error ELSE '' END,
                        date_trunc('second', v_now - r.at), r.relay, coalesce(': ' || r.reason, '')) END;
        RETURN NEXT;
    END LOOP;

    IF NOT v_known THEN
        FOR r IN SELECT DISTINCT ON (d.endpoint) d.endpoint, d.delivered_at
                   FROM outbox.delivered d WHERE d.id = p_id ORDER BY d.endpoint, d.delivered_at DESC
        LOOP
            endpoint := r.endpoint;
            state := 'delivered';
            why := format('it was delivered %s ago', date_trunc('second', v_now - r.delivered_at));
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.why IS 'Public. Says why a message is not delivered: SELECT * FROM outbox.why(id).';
