-- Fan-out: makes of each due row in the lane of a topic one row per endpoint that the topic goes to, so that each is retried
-- alone.
--
-- The new rows have the id and seq of the old one, and begin afresh under a key of their own. A row that was tried keeps
-- its endpoint and its key: where that endpoint is one of p_known it is moved to its lane with all that it went through, and
-- goes to no other endpoint; where nobody knows it any more, the others get it as if it were new. A leased row is left where it is.
-- What is left in the topic's lane closes its key in the lanes of its endpoints for what comes after it (see outbox.claim),
-- so rows need not be taken in the order of their keys here.
-- A row whose id is still on its way to some endpoint (the application used it again) waits until that is over.
--
-- Locks as a claim: the relay's own row, which also says that what the caller remembers of floors still holds, then the
-- lane. The endpoints' rows are not needed: whether they are paused or not, their rows can wait in their lanes.
--
-- Parameters: who; the topic; p_to = the endpoints that it goes to; p_known = all that the caller knows; limit and bytes bound the
-- rows that are taken; the floors as in outbox.claim.
--
-- Returns state (claimed: rows were taken; empty; busy; missing; relay_gone, other_session, other_epoch), the endpoints that got
-- rows, and floors, dry and next_due_in as outbox.claim.
CREATE OR REPLACE FUNCTION outbox.expand(
    p_relay uuid, p_session integer, p_epoch uuid,
    p_topic text, p_to text[], p_known text[], p_limit integer, p_bytes bigint,
    p_ready_floor bigint, p_waiting_floor timestamptz, p_waiting_seq bigint, p_lease_floor bigint,
    OUT state text, OUT endpoints text[],
    OUT ready_floor bigint, OUT waiting_floor timestamptz, OUT waiting_seq bigint, OUT lease_floor bigint,
    OUT dry boolean, OUT next_due_in double precision, OUT others boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_relay outbox.relays;
    v_busy  uuid[];
    v_now   timestamptz;
    v_ids   uuid[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.expand needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    endpoints := '{}';

    SELECT * INTO v_relay FROM outbox.relays r WHERE r.relay = p_relay FOR KEY SHARE;
    IF NOT FOUND THEN state := 'relay_gone'; RETURN; END IF;
    IF v_relay.session <> p_session THEN state := 'other_session'; RETURN; END IF;
    IF NOT EXISTS (SELECT FROM outbox.epoch e WHERE e.only_row AND e.epoch = p_epoch) THEN state := 'other_epoch'; RETURN; END IF;

    PERFORM FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = '' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        state := CASE WHEN EXISTS (SELECT FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = '')
                      THEN 'busy' ELSE 'missing' END;
        RETURN;
    END IF;

    SELECT min(l.lease), coalesce(array_agg(i.id), '{}'), coalesce(bool_or(l.relay <> p_relay), false)
      INTO lease_floor, v_busy, others
      FROM outbox.leases l CROSS JOIN LATERAL unnest(l.ids) AS i (id)
     WHERE l.topic = p_topic AND l.lane_endpoint = '' AND l.lease >= p_lease_floor;
    lease_floor := coalesce(lease_floor, p_lease_floor);

    v_now := clock_timestamp();
    SELECT p.ids, p.ready_floor, p.waiting_floor, p.waiting_seq, p.dry
      INTO v_ids, ready_floor, waiting_floor, waiting_seq, dry
      FROM outbox.pick_unordered(p_topic, '', v_now, p_limit, p_bytes,
                                 p_ready_floor, coalesce(p_waiting_floor, '-infinity'), p_waiting_seq,
                                 v_busy, true, 2147483647) p;
    state := 'empty';
    IF cardinality(v_ids) > 0 THEN
        -- The caller knows where it puts rows: nobody has to be woken for that.
        PERFORM set_config('outbox.doorbell', 'off', true);
        -- Before the rows, so that a claim that looks for a second lane of a key can't miss it.
        INSERT INTO outbox.lanes (topic, endpoint)
        SELECT p_topic, t.endpoint
          FROM (SELECT unnest(p_to) AS endpoint
                UNION
                SELECT m.sent_to FROM outbox.messages m
                 WHERE m.id = ANY (v_ids) AND m.endpoint = '' AND m.sent_to = ANY (p_known)) t
         ORDER BY t.endpoint
        ON CONFLICT (topic, endpoint) DO NOTHING;
        PERFORM FROM outbox.messages m WHERE m.id = ANY (v_ids) AND m.endpoint = '' ORDER BY m.id FOR UPDATE;
        WITH taken AS (
            DELETE FROM outbox.messages m
             WHERE m.id = ANY (v_ids) AND m.endpoint = ''
               AND (SELECT true FROM outbox.messages o WHERE o.id = m.id AND o.endpoint > '' ORDER BY o.endpoint LIMIT 1) IS NULL
            RETURNING m.*, coalesce(m.sent_to = ANY (p_known), false) AS moves
        ), made AS (
            INSERT INTO outbox.messages (id, endpoint, seq, created_at, due_at, expires_at, replayed_at, attempts, lost, throttled,
                generation, topic, key, type, content_type, headers, payload, body, last_error, sent_to)
            OVERRIDING SYSTEM VALUE
            SELECT t.id, e.endpoint, t.seq, t.created_at, t.due_at, t.expires_at, t.replayed_at,
                   CASE WHEN t.moves THEN t.attempts ELSE 0 END, CASE WHEN t.moves THEN t.lost ELSE 0 END,
                   CASE WHEN t.moves THEN t.throttled ELSE 0 END,
                   t.generation, t.topic, t.key, t.type, t.content_type, t.headers, t.payload, t.body,
                   CASE WHEN t.moves THEN t.last_error END, CASE WHEN t.moves THEN t.sent_to END
              FROM taken t
             CROSS JOIN LATERAL unnest(CASE WHEN t.moves THEN ARRAY[t.sent_to] ELSE p_to END) AS e (endpoint)
            RETURNING endpoint
        )
        SELECT coalesce(array_agg(DISTINCT m.endpoint), '{}') INTO endpoints FROM made m;
        IF cardinality(endpoints) > 0 THEN
            state := 'claimed';
            -- What a crash forgets is done again, under the same keys.
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
    END IF;
    IF waiting_floor = '-infinity' THEN waiting_floor := NULL; waiting_seq := 0; END IF;
    IF dry THEN
        next_due_in := (SELECT extract(epoch FROM m.due_at) - extract(epoch FROM v_now)
                          FROM outbox.messages m
                         WHERE m.topic = p_topic AND m.endpoint = '' AND m.due_at IS NOT NULL AND m.due_at > v_now
                         ORDER BY m.due_at, m.seq LIMIT 1);
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.expand IS 'Private. Makes one row per endpoint of rows whose topic goes to several.';
