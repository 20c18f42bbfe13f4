-- Searches the history, newest first, a page at a time: every attempt, every death without one, and what operators did.
--
-- The filter, of which all must fit: message id; topic, whole or with a `*` at its end; endpoint; key; outcome (its class);
-- settlement; HTTP status; error = a part of its text or of what was answered, in upper or
-- lower case; relay; p_failures = only attempts and deaths that were no delivery;
-- slower = it took longer than so many seconds; attempt = its number, from 1 (0: none was made); since and until = when it was started.
-- p_after = the place of the last row of the page before.
-- Never an OFFSET: each page starts at its place in an index. Failures have one of their own.
CREATE OR REPLACE FUNCTION outbox.history(
    p_id uuid DEFAULT NULL, p_topic text DEFAULT NULL, p_endpoint text DEFAULT NULL, p_key text DEFAULT NULL,
    p_outcome text DEFAULT NULL, p_settlement text DEFAULT NULL, p_status integer DEFAULT NULL, p_error text DEFAULT NULL,
    p_relay text DEFAULT NULL, p_failures boolean DEFAULT false, p_slower double precision DEFAULT NULL, p_attempt integer DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_after json DEFAULT NULL, p_limit integer DEFAULT 50
)
RETURNS TABLE (
    started_at timestamptz, seconds double precision, id uuid, endpoint text, topic text, key text, attempt integer,
    generation integer, outcome text, settlement text, reason text, status integer, error text, response text, relay text,
    request jsonb, response_headers jsonb, place json
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_at       timestamptz := coalesce((p_after ->> 0)::timestamptz, p_until, 'infinity');
    v_id       uuid := coalesce((p_after ->> 1)::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    v_endpoint text := coalesce(p_after ->> 2, '');
    v_attempt  integer := coalesce((p_after ->> 3)::integer, 2147483647);
    v_seq      bigint := coalesce((p_after ->> 4)::bigint, 9223372036854775807);
    v_since    timestamptz := coalesce(p_since, '-infinity');
    v_until    timestamptz := coalesce(p_until, 'infinity');
    v_slower   interval;
BEGIN
    -- A word that nothing has would be answered with nothing, as if all were well.
    IF p_settlement NOT IN ('delivered', 'retry', 'put_off', 'dead', 'undo', 'replayed', 'discarded', 'cancelled', 'key_released') THEN
        RAISE EXCEPTION 'a settlement is delivered, retry, put_off, dead, undo, replayed, discarded, cancelled or key_released, not %', p_settlement
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_outcome NOT IN ('success', 'redirect', 'unavailable', 'misconfigured', 'rejected', 'gone', 'proxy', 'dns', 'connect',
                            'connect_timeout', 'tls', 'reset', 'protocol', 'timeout', 'unsendable', 'aborted', 'exhausted', 'panicked',
                            'lost', 'expired', 'replayed', 'discarded', 'cancelled', 'key_released') THEN
        RAISE EXCEPTION 'no outcome is called %: see the comment on the column outcome of outbox.attempts', p_outcome
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT p_slower BETWEEN 0 AND 1000000 THEN
        RAISE EXCEPTION 'slower: from 0 to 1000000 seconds, not %', p_slower USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_attempt < 0 THEN
        RAISE EXCEPTION 'attempt: from 0, not %', p_attempt USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_slower := make_interval(secs => p_slower);
    -- Failures are few among many, and have an index of their own. An error is one of a failure, unless deliveries are asked for.
    IF json_array_length(p_after) <> 5 THEN
        RAISE EXCEPTION 'this is not the place of a line of the history: %', p_after USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_failures OR p_settlement <> 'delivered' OR p_error IS NOT NULL AND p_settlement IS NULL THEN
        RETURN QUERY
        SELECT a.started_at, extract(epoch FROM a.duration)::double precision, a.id, a.endpoint, a.topic, a.key, a.attempt, a.generation,
               a.outcome, a.settlement, a.reason, a.status, a.error, a.response, a.relay, a.request, a.response_headers,
               json_build_array(a.started_at, a.id, a.endpoint, a.attempt, a.seq)
          FROM outbox.attempts a
         WHERE a.settlement <> 'delivered'
           AND a.started_at <= v_at AND (a.started_at, a.id, a.endpoint, a.attempt, a.seq) < (v_at, v_id, v_endpoint, v_attempt, v_seq)
           AND a.started_at >= v_since AND a.started_at < v_until
           AND (p_id IS NULL OR a.id = p_id)
           AND outbox.fits(a.topic, a.endpoint, a.key, a.outcome, a.status, concat_ws(' ', a.error, a.response),
                           p_topic, p_endpoint, p_key, p_outcome, p_status, p_error)
           AND (NOT p_failures OR a.settlement IN ('retry', 'put_off', 'dead', 'undo'))
           AND (p_settlement IS NULL OR a.settlement = p_settlement)
           AND (p_relay IS NULL OR a.relay = p_relay)
           AND (p_slower IS NULL OR a.duration > v_slower)
           AND (p_attempt IS NULL OR a.attempt = p_attempt)
         ORDER BY a.started_at DESC, a.id DESC, a.endpoint DESC, a.attempt DESC, a.seq DESC
         LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT a.started_at, extract(epoch FROM a.duration)::double precision, a.id, a.endpoint, a.topic, a.key, a.attempt, a.generation,
               a.outcome, a.settlement, a.reason, a.status, a.error, a.response, a.relay, a.request, a.response_headers,
               json_build_array(a.started_at, a.id, a.endpoint, a.attempt, a.seq)
          FROM outbox.attempts a
         WHERE a.started_at <= v_at AND (a.started_at, a.id, a.endpoint, a.attempt, a.seq) < (v_at, v_id, v_endpoint, v_attempt, v_seq)
           AND a.started_at >= v_since AND a.started_at < v_until
           AND (p_id IS NULL OR a.id = p_id)
           AND outbox.fits(a.topic, a.endpoint, a.key, a.outcome, a.status, concat_ws(' ', a.error, a.response),
                           p_topic, p_endpoint, p_key, p_outcome, p_status, p_error)
           AND (p_settlement IS NULL OR a.settlement = p_settlement)
           AND (p_relay IS NULL OR a.relay = p_relay)
           AND (p_slower IS NULL OR a.duration > v_slower)
           AND (p_attempt IS NULL OR a.attempt = p_attempt)
         ORDER BY a.started_at DESC, a.id DESC, a.endpoint DESC, a.attempt DESC, a.seq DESC
         LIMIT p_limit;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.history IS 'Public. Searches the history: SELECT * FROM outbox.history(p_error => ''…'').';
