-- Makes messages of dead letters or of delivered messages again: the one place where a row comes back. Private: outbox.replay and
-- outbox.run_job call it.
--
-- The row begins afresh: its attempts are given back, its age counts from now (max_age), a time to expire that is over is
-- forgotten, and its generation is raised, so that a late answer to an earlier try can't remove it. It goes where it went before:
-- what was tried keeps its endpoint and its key, whatever fan-out makes of its topic now. With p_new_key it gets another id, and
-- is another message to its receiver.
-- Order: a dead head that holds its key goes back to its place (it keeps its seq) and holds the key no longer, since now it is the
-- head again; any other gets a new seq, in the order of the old ones.
-- Guard: takes the lanes' locks, as a claim does. What is pending already stays as it is, and so does its dead letter; a delivered
-- message that has a dead letter too is replayed from that.
--
-- Parameters: source = dead or delivered; ids and the lanes' endpoints, in step, no pair twice; who and why, for the history.
-- Returns the ids that it replayed, in the order of seq, and new_ids in step: the same ones, or those under new keys.
CREATE OR REPLACE FUNCTION outbox.revive(
    p_source text, p_ids uuid[], p_lanes text[], p_new_key boolean, p_why text, p_by text,
    OUT ids uuid[], OUT new_ids uuid[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_lanes outbox.lanes[];
    v_now   timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a replay needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'));
    END IF;
    IF p_source NOT IN ('dead', 'delivered') THEN
        RAISE EXCEPTION 'what is replayed is dead or delivered, not %', p_source USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_lanes := CASE p_source
        WHEN 'dead' THEN ARRAY(
            SELECT DISTINCT ROW(d.topic, d.lane_endpoint, now(), '{}', false)::outbox.lanes
              FROM unnest(p_ids, p_lanes) AS u (id, lane)
              JOIN outbox.dead_letters d ON d.id = u.id AND d.lane_endpoint = u.lane)
        ELSE ARRAY(
            SELECT DISTINCT ROW(d.topic, d.lane_endpoint, now(), '{}', false)::outbox.lanes
              FROM unnest(p_ids, p_lanes) AS u (id, lane)
              JOIN outbox.delivered d ON d.id = u.id AND d.lane_endpoint = u.lane) END;
    INSERT INTO outbox.lanes (topic, endpoint)
    SELECT l.topic, l.endpoint FROM unnest(v_lanes) AS l ORDER BY l.topic, l.endpoint
    ON CONFLICT (topic, endpoint) DO NOTHING;
    PERFORM FROM unnest(v_lanes) AS v JOIN outbox.lanes l ON l.topic = v.topic AND l.endpoint = v.endpoint
      ORDER BY l.topic, l.endpoint FOR UPDATE OF l;

    -- Under the locks, in a new snapshot.
    v_now := clock_timestamp();
    WITH old AS (
        SELECT d.id, d.topic, d.lane_endpoint, d.endpoint, d.seq, d.created_at, d.expires_at, d.generation, d.key, d.type,
               d.content_type, d.headers, d.payload, d.body,
               -- A death without a try leaves the way open.
               CASE WHEN d.lane_endpoint = '' AND d.attempts + d.lost + d.throttled > 0
                    THEN coalesce(d.sent_to, nullif(d.endpoint, '')) ELSE d.sent_to END AS sent_to
          FROM unnest(p_ids, p_lanes) AS u (id, lane)
          JOIN outbox.dead_letters d ON d.id = u.id AND d.lane_endpoint = u.lane
         WHERE p_source = 'dead'
        UNION ALL
        SELECT d.id, d.topic, d.lane_endpoint, d.endpoint, d.seq, d.created_at, NULL, d.generation, d.key, d.type,
               d.content_type, d.headers, d.payload, d.body,
               CASE WHEN d.lane_endpoint = '' THEN coalesce(d.sent_to, d.endpoint) ELSE d.sent_to END
          FROM unnest(p_ids, p_lanes) AS u (id, lane)
         CROSS JOIN LATERAL (
                SELECT d.*
                  FROM outbox.delivered d
                 WHERE d.id = u.id AND d.lane_endpoint = u.lane
                 ORDER BY d.generation DESC, d.delivered_at DESC
                 LIMIT 1) d
         WHERE p_source = 'delivered'
           AND (SELECT true FROM outbox.dead_letters o WHERE o.id = u.id AND o.lane_endpoint = u.lane) IS NULL
    ), held AS (
        SELECT o.*, h.seq AS held_seq, CASE WHEN p_new_key THEN gen_random_uuid() ELSE o.id END AS new_id
          FROM old o
          JOIN unnest(v_lanes) AS l ON l.topic = o.topic AND l.endpoint = o.lane_endpoint
          LEFT JOIN outbox.held_keys h
            ON h.topic = o.topic AND h.lane_endpoint = o.lane_endpoint AND h.key = o.key AND h.id = o.id AND h.seq = o.seq
           AND p_source = 'dead'
         ORDER BY o.seq
    ), chosen AS MATERIALIZED (
        SELECT h.*, coalesce(h.held_seq, nextval('outbox.messages_seq_seq')) AS new_seq FROM held h
    ), revived AS (
        INSERT INTO outbox.messages AS m (id, endpoint, seq, created_at, due_at, replayed_at, expires_at, generation, topic, key, type,
            content_type, headers, payload, body, sent_to)
        OVERRIDING SYSTEM VALUE
        SELECT c.new_id, c.lane_endpoint, c.new_seq, c.created_at, v_now, v_now,
               CASE WHEN c.expires_at > v_now THEN c.expires_at END, c.generation + 1, c.topic, c.key, c.type,
               c.content_type, c.headers, c.payload, c.body, c.sent_to
          FROM chosen c
        ON CONFLICT (id, endpoint) DO NOTHING
        RETURNING m.id, m.endpoint
    ), done AS MATERIALIZED (
        SELECT c.* FROM chosen c JOIN revived r ON r.id = c.new_id AND r.endpoint = c.lane_endpoint
    ), buried AS (
        DELETE FROM outbox.dead_letters d
         USING done c
         WHERE p_source = 'dead'
           AND d.id = c.id AND d.lane_endpoint = c.lane_endpoint AND d.seq = c.seq AND d.generation = c.generation
    ), opened AS (
        DELETE FROM outbox.held_keys h
         USING done c
         WHERE h.topic = c.topic AND h.lane_endpoint = c.lane_endpoint AND h.key = c.key AND h.id = c.id AND h.seq = c.held_seq
    ), told AS (
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome,
            settlement, reason, relay, error)
        SELECT v_now, interval '0', t.id, c.new_seq, c.generation + 1, 0, c.topic, c.endpoint, c.key, 'replayed',
               'replayed', p_why, p_by, t.link
          FROM done c
         CROSS JOIN LATERAL (
                SELECT c.id, CASE WHEN p_new_key THEN 'as ' || c.new_id END AS link
                UNION ALL
                SELECT c.new_id, 'of ' || c.id WHERE p_new_key) t
    )
    SELECT coalesce(array_agg(c.id ORDER BY c.seq), '{}'), coalesce(array_agg(c.new_id ORDER BY c.seq), '{}')
      INTO ids, new_ids
      FROM done c;
END
$$;
COMMENT ON FUNCTION outbox.revive IS 'Private. Makes messages of dead letters or of delivered messages again.';
