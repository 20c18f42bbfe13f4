-- Lists messages: pending ones, dead letters, or what was delivered and is kept; a page at a time.
--
-- p_state = pending, dead or delivered. The filter, of which all must fit: see outbox.matching; for what is pending, error is
-- a part of its last error, and reason and status do not apply. since and until = when it was inserted, died or was delivered.
-- p_after = the place (column `place`) of the last row of the page before.
--
-- Returns, newest first (what is pending: by lane, ready before waiting, oldest first): id, endpoint (of what is pending
-- the ones that its route leads to, as far as a relay has said so), topic, key, type, at (when it was inserted, died, or was delivered), due_at of what is pending, attempts, reason, status, error, size
-- in bytes, generation (how often it was replayed), and place.
-- Never an OFFSET: each page starts at its place in an index.
CREATE OR REPLACE FUNCTION outbox.list(
    p_state text, p_topic text DEFAULT NULL, p_endpoint text DEFAULT NULL, p_key text DEFAULT NULL,
    p_reason text DEFAULT NULL, p_status integer DEFAULT NULL, p_error text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_after json DEFAULT NULL, p_limit integer DEFAULT 50
)
RETURNS TABLE (
    id uuid, endpoint text, topic text, key text, type text, at timestamptz, due_at timestamptz, attempts integer,
    reason text, status integer, error text, size integer, generation integer, place json
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_since timestamptz := coalesce(p_since, '-infinity');
    v_until timestamptz := coalesce(p_until, 'infinity');
    -- The place, as far as the state has it.
    v_at    timestamptz := 'infinity';
    v_seq   bigint := 9223372036854775807;
    v_id    uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_lane  text := '';
    v_topic text := '';
    v_more  integer := p_limit;
    v_rows  integer;
BEGIN
    PERFORM outbox.check_filter(p_state, p_reason, p_status, p_error);
    IF json_array_length(p_after) <> (CASE p_state WHEN 'pending' THEN 5 ELSE 4 END)
       OR p_state = 'pending' AND p_after ->> 0 NOT IN ('ready', 'waiting')
    THEN
        RAISE EXCEPTION 'this is not the place of a message that is %: %', p_state, p_after USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_after IS NOT NULL AND p_state <> 'pending' THEN
        v_at := p_after ->> 0;
        v_seq := p_after ->> 1;
        v_id := p_after ->> 2;
        v_lane := p_after ->> 3;
    END IF;
    IF p_state = 'dead' THEN
        RETURN QUERY
        SELECT d.id, d.endpoint, d.topic, d.key, d.type, d.died_at, NULL::timestamptz, d.attempts, d.reason, d.status,
               d.last_error, d.size, d.generation, json_build_array(d.died_at, d.seq, d.id, d.lane_endpoint)
          FROM outbox.dead_letters d
         WHERE (d.died_at, d.seq, d.id, d.lane_endpoint) < (v_at, v_seq, v_id, v_lane)
           AND d.died_at >= v_since AND d.died_at < v_until
           AND outbox.fits(d.topic, d.endpoint, d.key, d.reason, d.status, d.last_error,
                           p_topic, p_endpoint, p_key, p_reason, p_status, p_error)
         ORDER BY d.died_at DESC, d.seq DESC, d.id DESC, d.lane_endpoint DESC
         LIMIT p_limit;
    ELSIF p_state = 'delivered' THEN
        RETURN QUERY
        SELECT d.id, d.endpoint, d.topic, d.key, d.type, d.delivered_at, NULL::timestamptz, d.attempts, NULL, NULL::integer,
               NULL, d.size, d.generation, json_build_array(d.delivered_at, d.seq, d.id, d.lane_endpoint)
          FROM outbox.delivered d
         WHERE d.delivered_at <= v_at
           AND (d.delivered_at, d.seq, d.id, d.lane_endpoint) < (v_at, v_seq, v_id, v_lane)
           AND d.delivered_at >= v_since AND d.delivered_at < v_until
           AND outbox.fits(d.topic, d.endpoint, d.key, NULL, NULL, NULL, p_topic, p_endpoint, p_key, p_reason, p_status, p_error)
         ORDER BY d.delivered_at DESC, d.seq DESC, d.id DESC, d.lane_endpoint DESC
         LIMIT p_limit;
    ELSE
        -- Two walks along two indexes, one after the other: what is ready, then what waits. Its place says in which it is.
        v_topic := coalesce(p_after ->> 1, '');
        v_lane := coalesce(p_after ->> 2, '');
        v_seq := coalesce((p_after ->> 4)::bigint, 0);
        IF p_after IS NULL OR p_after ->> 0 = 'ready' THEN
            RETURN QUERY
            SELECT m.id, coalesce(t.endpoint, m.sent_to, ''), m.topic, m.key, m.type, m.created_at, m.due_at, m.attempts,
                   NULL, NULL::integer, m.last_error, m.size, m.generation,
                   json_build_array('ready', m.topic, m.endpoint, m.due_at, m.seq)
              FROM outbox.messages m
             CROSS JOIN LATERAL (SELECT CASE WHEN m.endpoint <> '' THEN m.endpoint
                        ELSE (SELECT CASE WHEN cardinality(l.leads_to) = 1 OR m.sent_to IS NULL THEN array_to_string(l.leads_to, ', ') ELSE m.sent_to END
                                FROM outbox.lanes l WHERE l.topic = m.topic AND l.endpoint = '') END AS endpoint) t
             WHERE m.due_at IS NULL AND (m.topic, m.endpoint, m.seq) > (v_topic, v_lane, v_seq)
               AND m.created_at >= v_since AND m.created_at < v_until
               AND outbox.fits(m.topic, NULL, m.key, NULL, NULL, m.last_error,
                               p_topic, NULL, p_key, p_reason, p_status, p_error)
               AND (p_endpoint IS NULL OR p_endpoint = ANY (string_to_array(t.endpoint, ', ')))
             ORDER BY m.topic, m.endpoint, m.seq
             LIMIT p_limit;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
            v_more := p_limit - v_rows;
            v_topic := '';
            v_lane := '';
            v_seq := 0;
        END IF;
        v_at := CASE WHEN p_after ->> 0 = 'waiting' THEN (p_after ->> 3)::timestamptz ELSE '-infinity' END;
        RETURN QUERY
        SELECT m.id, coalesce(t.endpoint, m.sent_to, ''), m.topic, m.key, m.type, m.created_at, m.due_at, m.attempts,
               NULL, NULL::integer, m.last_error, m.size, m.generation,
               json_build_array('waiting', m.topic, m.endpoint, m.due_at, m.seq)
          FROM outbox.messages m
         CROSS JOIN LATERAL (SELECT CASE WHEN m.endpoint <> '' THEN m.endpoint
                        ELSE (SELECT CASE WHEN cardinality(l.leads_to) = 1 OR m.sent_to IS NULL THEN array_to_string(l.leads_to, ', ') ELSE m.sent_to END
                                FROM outbox.lanes l WHERE l.topic = m.topic AND l.endpoint = '') END AS endpoint) t
         WHERE m.due_at IS NOT NULL AND (m.topic, m.endpoint, m.due_at, m.seq) > (v_topic, v_lane, v_at, v_seq)
           AND m.created_at >= v_since AND m.created_at < v_until
           AND outbox.fits(m.topic, NULL, m.key, NULL, NULL, m.last_error,
                           p_topic, NULL, p_key, p_reason, p_status, p_error)
           AND (p_endpoint IS NULL OR p_endpoint = ANY (string_to_array(t.endpoint, ', ')))
         ORDER BY m.topic, m.endpoint, m.due_at, m.seq
         LIMIT v_more;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.list IS 'Public. Lists messages: SELECT * FROM outbox.list(''dead'', p_endpoint => ''…''); the next page with p_after => the last place.';
