-- Settles deliveries of one relay in one transaction: whatever their leases, of one lane endpoint.
--
-- Guard: a success removes the row of its seq and generation, lease or no lease, since it was delivered; a replay raises
-- the generation, and an application that uses an id again gets another seq, so a late answer can't remove what is not
-- the row that was sent. Everything else applies only to ids that are still in the
-- array of the lease with this number AND this relay. History, archive, dead letters and held keys follow the ids that the
-- statement returned. So a settle that is sent twice changes nothing.
-- Locks: leases by number, then messages by id in one ordered statement, then held keys: the same order everywhere.
-- Plans: rows are found by their ids, all at once, and joined to their verdicts by a hash. With a probe for each instead, a planner
-- that takes the table for empty (analysed when it was) would as soon read all of it for each.
-- Failure: history and archive must never fail a settle; where they do (a missing partition, a full disk) the settle is
-- done without them and says so. A dead letter that can't be written fails the settle, and the row stays.
--
-- Parameters, arrays in step and ascending by id, the first wins where an id comes twice: lease, id, seq, generation;
-- settlement = delivered, retry, put_off (a retry that uses no attempt), dead or release (given back untouched, or its row
-- is gone); delay in seconds; reason of a
-- death; hold = a dead head closes its key; attempt number (of one that died without a request: how many were made);
-- outcome, NULL where no request was made; status, error,
-- response; duration and ago in seconds (ago = since the request was started). archive = keep delivered payloads; history = all, failures (what
-- was no delivery) or none of the attempts; request and response headers as JSON, NULL or no elements at all where none are kept;
-- output = what a step of a saga answered, if that is JSON, or no elements at all; poll = where one that is not done yet can be asked for,
-- an empty string: nowhere any more, or no elements at all.
-- Sagas: the step that is removed here moves its saga on in this transaction, so nobody does so twice, and a late success is not
-- lost. One that is given up is a dead letter where that parks its saga, and else gone: what follows is the undo.
--
-- Returns the ids whose rows were settled, why the history could not be written, NULL if it was, and topics and endpoints, in step: the
-- lanes that next steps of sagas were put into.
CREATE OR REPLACE FUNCTION outbox.settle(
    p_relay uuid, p_relay_name text, p_lane text, p_endpoint text[],
    p_lease bigint[], p_id uuid[], p_seq bigint[], p_generation integer[], p_settlement text[], p_delay double precision[],
    p_reason text[], p_hold boolean[], p_attempt integer[], p_outcome text[], p_status integer[],
    p_error text[], p_response text[], p_duration double precision[], p_ago double precision[], p_archive boolean,
    p_history text DEFAULT 'all', p_request text[] DEFAULT '{}', p_response_headers text[] DEFAULT '{}',
    p_output text[] DEFAULT '{}', p_poll text[] DEFAULT '{}',
    OUT settled uuid[], OUT history_error text, OUT topics text[], OUT endpoints text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = off
SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_leases  bigint[];   -- those of p_lease that this relay still holds, locked
    v_fenced  uuid[];     -- ids under them
    v_ways    text[];     -- what is done with the row, in step with the parameters; NULL: nothing
    v_others  boolean;    -- there is more to do than to remove what was delivered
    v_dead    uuid[] := '{}';
    v_dead_steps uuid[];  -- those of them that are steps of sagas
    v_steps   uuid[];     -- steps of sagas that were removed
    v_undone  uuid[];     -- steps of sagas that go back
    v_moved   record;
    v_now     timestamptz;
    v_history boolean := true;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.settle needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    -- A settle that a crash forgets is delivered again: it is durable, whatever the role, or who had this session before, has set.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    SELECT coalesce(array_agg(l.lease), '{}')
      INTO v_leases
      FROM (SELECT l.lease FROM outbox.leases l
             WHERE l.relay = p_relay AND l.lease = ANY (p_lease) AND l.lane_endpoint = p_lane
             ORDER BY l.lease FOR UPDATE) l;
    -- A statement of its own: it sees what the arrays hold now that they are locked. The first verdict on an id counts.
    SELECT coalesce(array_agg(CASE WHEN u.settlement = 'delivered' THEN 'remove'
                                   WHEN u.settlement = 'release' OR NOT u.fenced THEN NULL
                                   WHEN u.settlement = 'dead' THEN 'bury'
                                   ELSE 'keep' END), '{}'),
           coalesce(array_agg(u.id) FILTER (WHERE u.fenced), '{}')
      INTO v_ways, v_fenced
      FROM (SELECT u.id, CASE WHEN u.is_first THEN u.settlement ELSE 'release' END AS settlement,
                   u.is_first AND (u.id, u.lease) IN (
                       SELECT i.id, l.lease
                         FROM outbox.leases l CROSS JOIN LATERAL unnest(l.ids) AS i (id)
                        WHERE l.relay = p_relay AND l.lease = ANY (v_leases)) AS fenced
              FROM (SELECT u.*, u.id IS DISTINCT FROM lag(u.id) OVER (ORDER BY u.n) AS is_first
                      FROM unnest(p_id, p_lease, p_settlement) WITH ORDINALITY AS u (id, lease, settlement, n)) u
             ORDER BY u.n) u;
    v_others := 'keep' = ANY (v_ways) OR 'bury' = ANY (v_ways);
    IF v_others THEN
        -- Several statements below would lock in several orders: one takes all the locks first.
        PERFORM FROM outbox.messages m
          WHERE m.id = ANY (ARRAY(SELECT u.id FROM unnest(p_id, v_ways) AS u (id, way) WHERE u.way IS NOT NULL))
            AND m.endpoint = p_lane
          ORDER BY m.id FOR UPDATE;
        SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.id) FILTER (WHERE m.step IS NOT NULL), '{}')
          INTO v_dead, v_dead_steps
          FROM unnest(p_id, v_ways, p_seq, p_generation) AS u (id, way, seq, generation)
          JOIN outbox.messages m ON m.id = u.id AND m.generation = u.generation AND m.seq = u.seq
         WHERE u.way = 'bury' AND m.id = ANY (p_id) AND m.endpoint = p_lane;
    END IF;

    v_now := clock_timestamp();
    LOOP
        BEGIN
            settled := '{}';
            topics := NULL;
            endpoints := NULL;
            -- Nearly all there is under load: a statement of its own, since each part of a larger one would cost even where it
            -- has nothing to do. The arrays are taken apart once: an element of a text array is found by counting from its
            -- beginning.
            IF 'remove' = ANY (v_ways) THEN
                WITH removed AS (
                    DELETE FROM outbox.messages m
                     USING unnest(v_ways, p_id, p_seq, p_generation, p_endpoint, p_attempt, p_outcome, p_status,
                                  p_error, p_response, p_duration, p_ago, p_request, p_response_headers)
                           AS v (way, id, seq, generation, destination, attempt, outcome, status, error, response, duration, ago,
                                 request, response_headers)
                     WHERE v.way = 'remove'
                       AND m.id = ANY (p_id) AND m.endpoint = p_lane AND m.id = v.id AND m.generation = v.generation AND m.seq = v.seq
                    RETURNING m.*, v.destination, v.attempt, v.outcome, v.status, v.error, v.response, v.duration, v.ago,
                              v.request, v.response_headers
                ), archived AS (
                    INSERT INTO outbox.delivered (delivered_at, created_at, id, seq, attempts, lost, generation, size,
                        topic, lane_endpoint, endpoint, key, type, content_type, headers, payload, body, sent_to, step)
                    SELECT v_now, r.created_at, r.id, r.seq, r.attempts + 1, r.lost, r.generation, r.size,
                           r.topic, r.endpoint, r.destination, r.key, r.type, r.content_type, r.headers, r.payload, r.body,
                           r.sent_to, r.step
                      FROM removed r
                     WHERE p_archive AND v_history
                ), told AS (
                    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint,
                        key, outcome, settlement, relay, error, response, request, response_headers)
                    SELECT v_now - make_interval(secs => r.ago), make_interval(secs => r.duration), r.id, r.seq,
                           r.generation, r.attempt, r.status, r.topic, r.destination,
                           r.key, r.outcome, 'delivered', p_relay_name, r.error, r.response, r.request::jsonb,
                           r.response_headers::jsonb
                      FROM removed r
                     WHERE v_history AND p_history = 'all' AND r.outcome IS NOT NULL
                )
                SELECT coalesce(array_agg(r.id), '{}'), array_agg(r.id) FILTER (WHERE r.step IS NOT NULL)
                  INTO settled, v_steps
                  FROM removed r;
                IF v_steps IS NOT NULL THEN
                    v_moved := outbox.advance(v_steps, array_fill('done'::text, ARRAY[cardinality(v_steps)]),
                                              ARRAY(SELECT p_output[array_position(p_id, s.id)] FROM unnest(v_steps) AS s (id)), NULL);
                    topics := v_moved.topics;
                    endpoints := v_moved.endpoints;
                END IF;
            END IF;

            v_undone := '{}';
            IF cardinality(v_dead_steps) > 0 THEN
                v_moved := outbox.advance(
                    v_dead_steps,
                    -- One that could not even be made of the row is our mistake, not the business's no.
                    ARRAY(SELECT CASE WHEN p_reason[u.n] = 'rejected' AND p_outcome[u.n] <> 'unsendable' THEN 'refused' ELSE 'unknown' END
                            FROM unnest(v_dead_steps) WITH ORDINALITY AS s (id, i)
                           CROSS JOIN LATERAL (SELECT array_position(p_id, s.id) AS n) u ORDER BY s.i),
                    NULL,
                    ARRAY(SELECT coalesce(nullif(concat_ws(': ', p_error[u.n], nullif(left(split_part(p_response[u.n], chr(10), 1), 200), '')), ''),
                                          p_reason[u.n])
                            FROM unnest(v_dead_steps) WITH ORDINALITY AS s (id, i)
                           CROSS JOIN LATERAL (SELECT array_position(p_id, s.id) AS n) u ORDER BY s.i));
                v_undone := ARRAY(SELECT unnest(v_dead_steps) EXCEPT SELECT unnest(v_moved.parked));
                topics := topics || v_moved.topics;
                endpoints := endpoints || v_moved.endpoints;
            END IF;

            IF v_others THEN
                WITH kept AS (
                    UPDATE outbox.messages m
                       SET attempts = m.attempts + (v.settlement = 'retry')::integer,
                           throttled = m.throttled + (v.settlement = 'put_off')::integer,
                           due_at = v_now + make_interval(secs => v.delay),
                           -- And the first line of what was answered: it mostly says why.
                           last_error = nullif(concat_ws(': ', v.error, nullif(left(split_part(v.response, chr(10), 1), 200), '')), ''),
                           -- A row that fan-out made has a key of its own already.
                           sent_to = CASE WHEN p_lane = '' THEN v.destination ELSE m.sent_to END,
                           step = CASE WHEN v.poll IS NULL THEN m.step
                                       WHEN v.poll = '' THEN m.step - 'poll' - 'polled_since'
                                       -- The first 2xx of a time, or of the next one when that has lapsed.
                                       ELSE m.step || jsonb_build_object('poll', v.poll, 'polled_since',
                                            CASE WHEN extract(epoch FROM v_now) - (m.step ->> 'polled_since')::double precision
                                                      < coalesce((m.step ->> 'lapse')::double precision, 3600)
                                                 THEN m.step -> 'polled_since' ELSE to_jsonb(extract(epoch FROM v_now)) END) END
                      FROM unnest(v_ways, p_id, p_seq, p_generation, p_settlement, p_delay, p_endpoint, p_attempt, p_outcome,
                                  p_status, p_error, p_response, p_duration, p_ago, p_request, p_response_headers, p_poll)
                           AS v (way, id, seq, generation, settlement, delay, destination, attempt, outcome,
                                 status, error, response, duration, ago, request, response_headers, poll)
                     WHERE v.way = 'keep'
                       AND m.id = ANY (p_id) AND m.endpoint = p_lane AND m.id = v.id AND m.generation = v.generation AND m.seq = v.seq
                    RETURNING m.*, v.settlement, v.destination, v.attempt, v.outcome, v.status, v.error, v.response, v.duration,
                              v.ago, v.request, v.response_headers
                ), undone AS (
                    DELETE FROM outbox.messages m
                     WHERE m.id = ANY (v_undone) AND m.endpoint = p_lane
                    RETURNING m.id, m.seq, m.generation, m.topic, m.key, array_position(p_id, m.id) AS n
                ), buried AS MATERIALIZED (
                    SELECT b.*
                      FROM outbox.bury(p_lane, ARRAY(SELECT unnest(v_dead) EXCEPT SELECT unnest(v_undone)), p_id, p_endpoint, p_reason, p_status,
                                       ARRAY(SELECT nullif(concat_ws(': ', e.error, nullif(left(split_part(e.response, chr(10), 1), 200), '')), '')
                                               FROM unnest(p_error, p_response) WITH ORDINALITY AS e (error, response, n) ORDER BY e.n),
                                       ARRAY(SELECT (o.outcome IS NOT NULL)::integer
                                               FROM unnest(p_outcome) WITH ORDINALITY AS o (outcome, n) ORDER BY o.n),
                                       NULL, p_hold, v_now) b
                     WHERE cardinality(v_dead) > cardinality(v_undone)
                ), told AS (
                    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, status, topic, endpoint,
                        key, outcome, settlement, reason, relay, error, response, request, response_headers)
                    SELECT v_now - make_interval(secs => s.ago), make_interval(secs => s.duration), s.id, s.seq,
                           s.generation, s.attempt, s.status, s.topic, s.destination,
                           s.key, s.outcome, s.settlement, s.reason, p_relay_name, s.error, s.response, s.request::jsonb,
                           s.response_headers::jsonb
                      FROM (SELECT k.id, k.seq, k.generation, k.topic, k.key, k.settlement, NULL AS reason, k.destination,
                                   k.attempt, k.outcome, k.status, k.error, k.response, k.duration, k.ago, k.request,
                                   k.response_headers
                              FROM kept k
                            UNION ALL
                            -- A death has its line whether a request led to it or not.
                            SELECT b.id, b.seq, b.generation, b.topic, b.key, b.settlement, p_reason[b.n], p_endpoint[b.n], p_attempt[b.n],
                                   coalesce(p_outcome[b.n], p_reason[b.n]), p_status[b.n], p_error[b.n], p_response[b.n],
                                   p_duration[b.n], p_ago[b.n], p_request[b.n], p_response_headers[b.n]
                              FROM (SELECT b.id, b.seq, b.generation, b.topic, b.key, b.n, 'dead' AS settlement FROM buried b
                                    UNION ALL
                                    SELECT u.id, u.seq, u.generation, u.topic, u.key, u.n, 'undo' FROM undone u) b) s
                     WHERE v_history AND p_history <> 'none' AND s.outcome IS NOT NULL
                )
                SELECT settled || coalesce(array_agg(s.id), '{}') INTO settled
                  FROM (SELECT b.id FROM buried b UNION ALL SELECT u.id FROM undone u UNION ALL SELECT k.id FROM kept k) s;
            END IF;
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
