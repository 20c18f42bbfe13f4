-- Settles deliveries of one relay in one transaction: whatever their leases, of one lane endpoint.
--
-- Guard: a success removes the row of its seq and generation, lease or no lease, since it was delivered; a replay raises
-- the generation, and an application that uses an id again gets another seq, so a late answer can't remove what is not
-- the row that was sent. Everything else applies only to ids that are still in the
-- array of the lease with this number AND this relay. History, archive, dead letters and held keys follow the ids that the
-- statement returned. So a settle that is sent twice changes nothing.
-- Locks: leases by number, then messages by id in one ordered statement, then held keys: the same order everywhere.
-- Failure: history and archive must never fail a settle; where they do (a missing partition, a full disk) the settle is
-- done without them and says so. A dead letter that can't be written fails the settle, and the row stays.
--
-- Parameters, arrays in step and ascending by id, the first wins where an id comes twice: lease, id, seq, generation;
-- settlement = delivered, retry, put_off (a retry that uses no attempt), dead or release (given back untouched, or its row
-- is gone); delay in seconds; reason of a
-- death; hold = a dead head closes its key; attempt number (of one that died without a request: how many were made);
-- outcome, NULL where no request was made; status, error,
-- response; duration and ago in seconds (ago = since the request was started). archive = keep delivered payloads.
--
-- Returns the ids whose rows were settled, and why the history could not be written, NULL if it was.
CREATE OR REPLACE FUNCTION outbox.settle(
    p_relay uuid, p_relay_name text, p_lane text, p_endpoint text[],
    p_lease bigint[], p_id uuid[], p_seq bigint[], p_generation integer[], p_settlement text[], p_delay double precision[],
    p_reason text[], p_hold boolean[], p_attempt integer[], p_outcome text[], p_status integer[],
    p_error text[], p_response text[], p_duration double precision[], p_ago double precision[], p_archive boolean,
    OUT settled uuid[], OUT history_error text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_leases  bigint[];   -- those of p_lease that this relay still holds, locked
    v_fenced  uuid[];     -- ids under them
    v_remove  uuid[];
    v_dead    uuid[];
    v_retry   uuid[];
    v_now     timestamptz;
    v_history boolean := true;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.settle needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;

    SELECT coalesce(array_agg(l.lease), '{}')
      INTO v_leases
      FROM (SELECT l.lease FROM outbox.leases l
             WHERE l.relay = p_relay AND l.lease = ANY (p_lease) AND l.lane_endpoint = p_lane
             ORDER BY l.lease FOR UPDATE) l;
    -- A statement of its own: it sees what the arrays hold now that they are locked.
    v_fenced := ARRAY(
        SELECT i.id
          FROM outbox.leases l CROSS JOIN LATERAL unnest(l.ids) AS i (id)
         WHERE l.relay = p_relay AND l.lease = ANY (v_leases)
           AND p_lease[array_position(p_id, i.id)] = l.lease
    );

    SELECT coalesce(array_agg(i.id) FILTER (WHERE i.settlement = 'delivered'), '{}'),
           coalesce(array_agg(i.id) FILTER (WHERE i.settlement = 'dead' AND i.fenced), '{}'),
           coalesce(array_agg(i.id) FILTER (WHERE i.settlement IN ('retry', 'put_off') AND i.fenced), '{}')
      INTO v_remove, v_dead, v_retry
      FROM (SELECT u.id, u.settlement, u.id IN (SELECT unnest(v_fenced)) AS fenced
              FROM unnest(p_id, p_settlement) WITH ORDINALITY AS u (id, settlement, n)
             -- One verdict per id: a row that is both kept and removed would leave the table and go nowhere.
             WHERE u.n = array_position(p_id, u.id)) i;

    IF cardinality(v_retry) > 0 OR cardinality(v_dead) > 0 THEN
        -- Several statements below would lock in several orders: one takes all the locks first.
        PERFORM FROM outbox.messages m
          WHERE m.id = ANY (v_remove || v_dead || v_retry) AND m.endpoint = p_lane
          ORDER BY m.id FOR UPDATE;
    END IF;
    IF cardinality(v_dead) > 0 THEN
        v_dead := ARRAY(
            SELECT m.id
              FROM outbox.messages m
             WHERE m.id = ANY (v_dead) AND m.endpoint = p_lane
               AND m.generation = p_generation[array_position(p_id, m.id)]
               AND m.seq = p_seq[array_position(p_id, m.id)]
        );
    END IF;

    v_now := clock_timestamp();
    LOOP
        BEGIN
            WITH removed AS (
                DELETE FROM outbox.messages m
                 WHERE m.id = ANY (v_remove) AND m.endpoint = p_lane
                   AND m.generation = p_generation[array_position(p_id, m.id)]
                   AND m.seq = p_seq[array_position(p_id, m.id)]
                RETURNING m.*, array_position(p_id, m.id) AS n
            ), kept AS (
                UPDATE outbox.messages m
                   SET attempts = m.attempts + (p_settlement[array_position(p_id, m.id)] = 'retry')::integer,
                       throttled = m.throttled + (p_settlement[array_position(p_id, m.id)] = 'put_off')::integer,
                       due_at = v_now + make_interval(secs => p_delay[array_position(p_id, m.id)]),
                       last_error = p_error[array_position(p_id, m.id)],
                       -- A row that fan-out made has a key of its own already.
                       sent_to = CASE WHEN p_lane = '' THEN p_endpoint[array_position(p_id, m.id)] ELSE m.sent_to END
                 WHERE m.id = ANY (v_retry) AND m.endpoint = p_lane
                   AND m.generation = p_generation[array_position(p_id, m.id)]
                   AND m.seq = p_seq[array_position(p_id, m.id)]
                RETURNING m.*, array_position(p_id, m.id) AS n
            ), archived AS (
                INSERT INTO outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size,
                    topic, lane_endpoint, endpoint, key, type, content_type, headers, payload, body, sent_to)
                SELECT v_now, r.created_at, r.id, r.seq, r.attempts + 1, r.lost, r.generation, r.size,
                       r.topic, r.endpoint, p_endpoint[r.n], r.key, r.type, r.content_type, r.headers, r.payload, r.body,
                       r.sent_to
                  FROM removed r
                 WHERE p_archive AND v_history
            ), buried AS MATERIALIZED (
                SELECT b.*
                  FROM outbox.bury(p_lane, v_dead, p_id, p_endpoint, p_reason, p_status, p_error,
                                   ARRAY(SELECT (o.outcome IS NOT NULL)::integer
                                           FROM unnest(p_outcome) WITH ORDINALITY AS o (outcome, n) ORDER BY o.n),
                                   NULL, p_hold, v_now) b
                 WHERE cardinality(v_dead) > 0
            ), told AS (
                INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint, key,
                    outcome, settlement, reason, relay, error, response)
                SELECT v_now - make_interval(secs => p_ago[s.n]), make_interval(secs => p_duration[s.n]), s.id, s.seq,
                       s.generation, p_attempt[s.n], p_status[s.n], s.topic, p_endpoint[s.n], s.key,
                       coalesce(p_outcome[s.n], p_reason[s.n]), p_settlement[s.n], p_reason[s.n], p_relay_name, p_error[s.n],
                       p_response[s.n]
                  FROM (SELECT r.id, r.seq, r.generation, r.topic, r.key, r.n FROM removed r
                        UNION ALL SELECT b.id, b.seq, b.generation, b.topic, b.key, b.n FROM buried b
                        UNION ALL SELECT k.id, k.seq, k.generation, k.topic, k.key, k.n FROM kept k) s
                 -- A death has its line whether a request led to it or not.
                 WHERE v_history AND (p_outcome[s.n] IS NOT NULL OR p_settlement[s.n] = 'dead')
            )
            SELECT coalesce(array_agg(s.id), '{}') INTO settled
              FROM (SELECT r.id FROM removed r UNION ALL SELECT b.id FROM buried b UNION ALL SELECT k.id FROM kept k) s;
            EXIT;
        EXCEPTION
            WHEN deadlock_detected OR lock_not_available OR serialization_failure THEN RAISE;
            WHEN OTHERS THEN
                IF NOT v_history THEN RAISE; END IF;
                v_history := false;
                history_error := sqlerrm;
        END;
    END LOOP;

    -- What was settled leaves its lease in this transaction, so limits and keys are free at once.
    DELETE FROM outbox.leases l
     WHERE l.relay = p_relay AND l.lease = ANY (v_leases) AND l.ids <@ v_fenced;
    UPDATE outbox.leases l
       SET ids  = ARRAY(SELECT i.id FROM unnest(l.ids) WITH ORDINALITY AS i (id, n)
                         WHERE i.id NOT IN (SELECT unnest(v_fenced)) ORDER BY i.n),
           keys = ARRAY(SELECT i.key FROM unnest(l.ids, l.keys) WITH ORDINALITY AS i (id, key, n)
                         WHERE i.key IS NOT NULL AND i.id NOT IN (SELECT unnest(v_fenced)) ORDER BY i.n)
     WHERE l.relay = p_relay AND l.lease = ANY (v_leases);
END
$$;
COMMENT ON FUNCTION outbox.settle IS 'Private. Settles deliveries of one relay, guarded by their leases.';
