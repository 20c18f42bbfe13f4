-- Makes dead letters of messages: the one place where a row leaves the one table for the other. Private: outbox.settle,
-- outbox.reap and outbox.expire call it, each under its own locks and after its own checks.
--
-- Parameters: the lane's endpoint; dead = which messages; then arrays in step, in which the dead are some: id, endpoint (the
-- destination), reason, status and error of an attempt that was their last (NULL: none was made), attempts and lost = so
-- many more than the row says, hold = the death closes the key. An array that is NULL says nothing of any.
--
-- Returns the rows that it removed, for their history: n = the place in the arrays, tries = how many attempts were made.
CREATE OR REPLACE FUNCTION outbox.bury(
    p_lane text, p_dead uuid[], p_id uuid[], p_endpoint text[], p_reason text[], p_status integer[], p_error text[],
    p_attempts integer[], p_lost integer[], p_hold boolean[], p_now timestamptz
)
RETURNS TABLE (id uuid, seq bigint, generation integer, tries integer, topic text, key text, n integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH removed AS (
        DELETE FROM outbox.messages m
         WHERE m.id = ANY (p_dead) AND m.endpoint = p_lane
        RETURNING m.*, array_position(p_id, m.id) AS n
    ), dead AS (
        SELECT r.*, r.attempts + coalesce(p_attempts[r.n], 0) AS attempts_now, r.lost + coalesce(p_lost[r.n], 0) AS lost_now
          FROM removed r
    ), buried AS (
        INSERT INTO outbox.dead_letters AS d (id, lane_endpoint, died_at, created_at, expires_at, seq, attempts, lost,
            throttled, generation, size, status, topic, endpoint, reason, key, type, content_type, headers, payload,
            body, last_error, sent_to, step)
        SELECT r.id, r.endpoint, p_now, r.created_at, r.expires_at, r.seq, r.attempts_now, r.lost_now,
               r.throttled, r.generation, r.size, p_status[r.n], r.topic, p_endpoint[r.n], p_reason[r.n], r.key, r.type,
               r.content_type, r.headers, r.payload, r.body, coalesce(p_error[r.n], r.last_error),
               r.sent_to, r.step
          FROM dead r
        -- The application may have used the id again, or a replayed message died again: the last death counts.
        ON CONFLICT (id, lane_endpoint) DO UPDATE
           SET died_at = excluded.died_at, created_at = excluded.created_at, expires_at = excluded.expires_at,
               seq = excluded.seq, attempts = excluded.attempts, lost = excluded.lost,
               throttled = excluded.throttled, generation = excluded.generation, size = excluded.size,
               status = excluded.status, topic = excluded.topic, endpoint = excluded.endpoint,
               reason = excluded.reason, key = excluded.key, type = excluded.type,
               content_type = excluded.content_type, headers = excluded.headers, payload = excluded.payload,
               body = excluded.body, last_error = excluded.last_error, sent_to = excluded.sent_to, step = excluded.step
    ), held AS (
        INSERT INTO outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
        SELECT r.topic, r.endpoint, r.key, p_endpoint[r.n], r.id, r.seq
          FROM dead r
         WHERE p_hold[r.n] AND r.key IS NOT NULL
         ORDER BY r.topic, r.key, r.seq
        ON CONFLICT (topic, lane_endpoint, key) DO NOTHING
    )
    SELECT r.id, r.seq, r.generation, r.attempts_now + r.lost_now + r.throttled, r.topic, r.key, r.n FROM dead r;
END
$$;
COMMENT ON FUNCTION outbox.bury IS 'Private. Makes dead letters of messages.';
