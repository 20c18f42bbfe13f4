-- Makes messages of dead letters or of delivered messages again: the one place where a row comes back. Private: outbox.replay and
-- outbox.run_job call it.
--
-- The row begins afresh: its attempts are given back, its age counts from now (max_age), a time to expire that is over is
-- forgotten, and its generation is raised, so that a late answer to an earlier try can't remove it. Where its topic goes to several
-- endpoints, what was tried keeps its endpoint and its key. With p_new_key it gets another id, and is another message to its receiver.
-- Order: a dead head that holds its key goes back to its place (it keeps its seq) and holds the key no longer, since now it is the
-- head again; any other gets a new seq, in the order in which they are given.
-- Guard: takes the lanes' locks, as a claim does. What is not any more what the caller saw (seq and generation) is left alone; so is what
-- is pending already, with its dead letter, and a delivered message that has a dead letter too.
-- Failure: an application may be using an id again in a transaction that is open. It must never be the one that is chosen when each
-- waits for the other: so it is waited for only for a moment that is short beside deadlock_timeout, and never again in the same
-- transaction once something is held. What is behind such a message is left to the next call, which begins with it, and passes it over.
--
-- Parameters: source = dead or delivered; ids, lanes' endpoints, seqs and generations, in step, no (id, lane) twice; who and why, for
-- the history. Returns the ids that it replayed, in that order, new_ids in step: the same ones, or those under new keys, and seen: with
-- how many of what was given it is done.
CREATE OR REPLACE FUNCTION outbox.revive(
    p_source text, p_ids uuid[], p_lanes text[], p_seqs bigint[], p_generations integer[],
    p_new_key boolean, p_why text, p_by text,
    OUT ids uuid[], OUT new_ids uuid[], OUT seen integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_lanes    outbox.lanes[];
    v_now      timestamptz;
    v_patience text := current_setting('lock_timeout');
    v_from     integer := 1;
    v_to       integer := cardinality(p_ids);
    v_passed   integer := 0;
    v_ids      uuid[];
    v_new_ids  uuid[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a replay needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    IF p_source NOT IN ('dead', 'delivered') THEN
        RAISE EXCEPTION 'what is replayed is dead or delivered, not %', p_source USING ERRCODE = 'invalid_parameter_value';
    END IF;
    ids := '{}';
    new_ids := '{}';
    PERFORM outbox.ensure_partitions();
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

    WHILE v_from <= v_to LOOP
        -- Under the locks, in a new snapshot.
        v_now := clock_timestamp();
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            WITH old AS (
                SELECT u.n, d.id, d.topic, d.lane_endpoint, d.endpoint, d.seq, d.created_at, d.expires_at, d.generation, d.key, d.type,
                       d.content_type, d.headers, d.payload, d.body,
                       -- A death without a try leaves the way open.
                       CASE WHEN d.lane_endpoint = '' AND d.attempts + d.lost + d.throttled > 0
                            THEN coalesce(d.sent_to, nullif(d.endpoint, '')) ELSE d.sent_to END AS sent_to
                  FROM unnest(p_ids[v_from:v_to], p_lanes[v_from:v_to], p_seqs[v_from:v_to], p_generations[v_from:v_to])
                       WITH ORDINALITY AS u (id, lane, seq, generation, n)
                  JOIN outbox.dead_letters d
                    ON d.id = u.id AND d.lane_endpoint = u.lane AND d.seq = u.seq AND d.generation = u.generation
                 WHERE p_source = 'dead'
                UNION ALL
                SELECT u.n, d.id, d.topic, d.lane_endpoint, d.endpoint, d.seq, d.created_at, NULL, d.generation, d.key, d.type,
                       d.content_type, d.headers, d.payload, d.body,
                       CASE WHEN d.lane_endpoint = '' THEN coalesce(d.sent_to, d.endpoint) ELSE d.sent_to END
                  FROM unnest(p_ids[v_from:v_to], p_lanes[v_from:v_to], p_seqs[v_from:v_to], p_generations[v_from:v_to])
                       WITH ORDINALITY AS u (id, lane, seq, generation, n)
                 CROSS JOIN LATERAL (
                        SELECT d.*
                          FROM outbox.delivered d
                         WHERE d.id = u.id AND d.lane_endpoint = u.lane AND d.seq = u.seq AND d.generation = u.generation
                         LIMIT 1) d
                 WHERE p_source = 'delivered'
                   AND (SELECT true FROM outbox.dead_letters o WHERE o.id = u.id AND o.lane_endpoint = u.lane) IS NULL
            ), held AS (
                SELECT o.*, h.seq AS held_seq, CASE WHEN p_new_key THEN gen_random_uuid() ELSE o.id END AS new_id
                  FROM old o
                  JOIN unnest(v_lanes) AS l ON l.topic = o.topic AND l.endpoint = o.lane_endpoint
                  LEFT JOIN outbox.held_keys h
                    ON h.topic = o.topic AND h.lane_endpoint = o.lane_endpoint AND h.key = o.key AND h.id = o.id
                   AND p_source = 'dead'
                 ORDER BY o.n
            ), chosen AS MATERIALIZED (
                SELECT h.*, coalesce(h.held_seq, nextval('outbox.messages_seq_seq')) AS new_seq FROM held h
            ), revived AS (
                INSERT INTO outbox.messages AS m (id, endpoint, seq, created_at, due_at, replayed_at, expires_at, generation, topic,
                    key, type, content_type, headers, payload, body, sent_to)
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
                 WHERE h.topic = c.topic AND h.lane_endpoint = c.lane_endpoint AND h.key = c.key AND h.id = c.id
                   AND c.held_seq IS NOT NULL
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
            SELECT coalesce(array_agg(c.id ORDER BY c.n), '{}'), coalesce(array_agg(c.new_id ORDER BY c.n), '{}')
              INTO v_ids, v_new_ids
              FROM done c;
            PERFORM set_config('lock_timeout', v_patience, true);
            ids := ids || v_ids;
            new_ids := new_ids || v_new_ids;
            v_from := v_to + 1;
            EXIT WHEN v_from > least(cardinality(p_ids), 50);
            v_to := v_from;
        EXCEPTION
            WHEN lock_not_available THEN
                -- From here on one by one.
                IF v_to = v_from THEN
                    EXIT WHEN cardinality(ids) > 0 OR v_passed >= 5;
                    v_passed := v_passed + 1;
                    v_from := v_from + 1;
                    EXIT WHEN v_from > cardinality(p_ids);
                END IF;
                v_to := v_from;
        END;
    END LOOP;
    seen := v_from - 1;
    PERFORM set_config('lock_timeout', v_patience, true);
END
$$;
COMMENT ON FUNCTION outbox.revive IS 'Private. Makes messages of dead letters or of delivered messages again.';
