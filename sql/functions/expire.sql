-- Gives up messages of one lane whose time is over and that no claim meets: their endpoint is paused or closed, or nobody has
-- a route for them. A claim decides the same for those that it meets.
--
-- Guard: takes the lane's lock, as a claim does, and never waits for it; what is leased is left to its relay. What the caller
-- saw is checked again under the lock, so several relays may say the same at once.
-- Order: where a dead head closes its key (p_hold), a live row dies only when it is the head of a key that is open, and
-- closes it: dying behind its head it would leave a gap that nobody is held up by. That counts the lanes of the topic that lead
-- to the same endpoint, as in outbox.claim; before fan-out all lanes of the topic, since a row that dies there closes its key in
-- all of them, and what was expanded before it would be held by it. A row that the application scheduled
-- for later and nobody tried has not joined the order of its key yet, and closes nothing.
-- Who has no route does not know of order either, and leaves the lane to the others as long as one of them may have one.
-- Locks: lanes, then messages by id in one ordered statement, then held keys, as everywhere.
-- Failure: history never stands in the way, as in outbox.settle.
--
-- Parameters: who; the lane (topic, lane); endpoint = where its route leads, an empty string before fan-out, NULL where the
-- caller can't deliver it; ids = messages of it, not more than a transaction should hold; the relay's name. Returns dead (how many), keys (theirs), and why
-- the history could not be written, NULL if it was.
CREATE OR REPLACE FUNCTION outbox.expire(
    p_relay uuid, p_topic text, p_lane text, p_endpoint text, p_hold boolean, p_ids uuid[], p_relay_name text,
    OUT dead integer, OUT keys text[], OUT history_error text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_now     timestamptz;
    v_busy    uuid[];
    v_closed  text[];
    v_others  text[];     -- lanes that a key of this lane can be in as well
    v_ids     uuid[];
    v_holds   boolean[];
    v_places  integer[];
    v_history boolean := true;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.expire needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    dead := 0;
    keys := '{}';

    -- A relay that is dead is gone from here when it is reaped. A list of a thousand lanes may be cut.
    IF p_endpoint IS NULL AND EXISTS (
        SELECT FROM outbox.relays r
         WHERE r.relay <> p_relay AND cardinality(r.unrouted_topics) < 1000
           AND NOT EXISTS (SELECT FROM unnest(r.unrouted_topics, r.unrouted_endpoints) AS u (topic, endpoint)
                            WHERE u.topic = p_topic AND u.endpoint = p_lane))
    THEN RETURN; END IF;

    PERFORM FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = p_lane FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        -- Somebody claims there just now, or nobody ever had a route for it.
        INSERT INTO outbox.lanes (topic, endpoint) VALUES (p_topic, p_lane) ON CONFLICT (topic, endpoint) DO NOTHING;
        IF NOT FOUND THEN RETURN; END IF;
    END IF;

    -- In new snapshots, leases before messages: see outbox.claim.
    SELECT coalesce(array_agg(i.id), '{}'), coalesce(array_agg(i.key) FILTER (WHERE i.key <> ''), '{}')
      INTO v_busy, v_closed
      FROM outbox.leases l CROSS JOIN LATERAL unnest(l.ids, l.keys) AS i (id, key)
     WHERE l.topic = p_topic AND l.lane_endpoint = p_lane;

    IF p_hold THEN
        v_others := CASE WHEN p_lane <> '' THEN ARRAY['']
                         WHEN p_endpoint <> '' THEN ARRAY[p_endpoint]
                         ELSE ARRAY(SELECT l.endpoint FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint > '') END;
    END IF;

    v_now := clock_timestamp();
    SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(p_hold AND c.is_live), '{}')
      INTO v_ids, v_holds
      FROM (SELECT m.id, s.is_live
              FROM outbox.messages m
             CROSS JOIN LATERAL (SELECT m.due_at IS NULL OR m.due_at <= v_now
                                        OR m.attempts > 0 OR m.lost > 0 OR m.throttled > 0 OR m.generation > 0) AS s (is_live)
             WHERE m.id = ANY (p_ids) AND m.endpoint = p_lane AND m.topic = p_topic AND m.expires_at <= v_now
               AND m.id NOT IN (SELECT unnest(v_busy))
               AND (NOT p_hold OR m.key IS NULL OR NOT s.is_live
                    OR (m.key NOT IN (SELECT unnest(v_closed))
                        -- One probe in each lane: a planner that knows no better would read all held keys.
                        AND NOT EXISTS (SELECT
                                          FROM unnest(p_lane || v_others) AS v (lane)
                                         CROSS JOIN LATERAL (
                                                SELECT FROM outbox.held_keys h
                                                 WHERE h.topic = p_topic AND h.lane_endpoint = v.lane AND h.key = m.key
                                                   AND (v.lane = p_lane OR h.endpoint IN (p_endpoint, ''))
                                                 LIMIT 1) e)
                        AND m.seq = (SELECT h.seq
                                       FROM outbox.messages h
                                      WHERE h.topic = p_topic AND h.endpoint = p_lane AND h.key = m.key
                                        AND (h.due_at IS NULL OR h.due_at <= v_now
                                             OR h.attempts > 0 OR h.lost > 0 OR h.throttled > 0 OR h.generation > 0)
                                      ORDER BY h.seq LIMIT 1)
                        AND NOT EXISTS (SELECT
                                          FROM unnest(v_others) AS v (lane)
                                         CROSS JOIN LATERAL (
                                                SELECT FROM outbox.messages o
                                                 WHERE o.topic = p_topic AND o.endpoint = v.lane AND o.key = m.key
                                                   AND o.seq < m.seq
                                                   AND (o.due_at IS NULL OR o.due_at <= v_now OR o.attempts > 0
                                                        OR o.lost > 0 OR o.throttled > 0 OR o.generation > 0)
                                                 ORDER BY o.seq LIMIT 1) e)))
             ORDER BY m.id FOR UPDATE OF m SKIP LOCKED) c;
    IF cardinality(v_ids) = 0 THEN RETURN; END IF;
    v_places := ARRAY[cardinality(v_ids)];

    LOOP
        BEGIN
            WITH buried AS MATERIALIZED (
                SELECT b.*
                  FROM outbox.bury(p_lane, v_ids, v_ids, array_fill(coalesce(p_endpoint, p_lane), v_places),
                                   array_fill('expired'::text, v_places), NULL, NULL, NULL, NULL, v_holds, v_now) b
            ), told AS (
                INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key,
                    outcome, settlement, reason, relay)
                SELECT v_now, interval '0', b.id, b.seq, b.generation, b.tries, b.topic, coalesce(p_endpoint, p_lane), b.key,
                       'expired', 'dead', 'expired', p_relay_name
                  FROM buried b
                 WHERE v_history
            )
            SELECT count(*), coalesce(array_agg(DISTINCT b.key) FILTER (WHERE b.key IS NOT NULL), '{}')
              INTO expire.dead, expire.keys
              FROM buried b;
            EXIT;
        EXCEPTION
            WHEN deadlock_detected OR lock_not_available OR serialization_failure THEN RAISE;
            WHEN OTHERS THEN
                IF NOT v_history THEN RAISE; END IF;
                v_history := false;
                history_error := sqlerrm;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.expire IS 'Private. Gives up messages of one lane whose time is over.';
