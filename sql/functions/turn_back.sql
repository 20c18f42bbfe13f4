-- Turns a saga back that is to go back, if that can be done now: private, outbox.cancel_saga and outbox.tend_sagas call it.
--
-- Nothing of it may be in flight: its lane is locked, so that no claim can take its message, and never waited for; what is leased is
-- left to the settle that ends it. Locks: the lane, the message, the saga, in the order of a settle; a parked or new saga alone.
-- Of one that is parked the dead letter goes.
--
-- Returns status: what it has now; NULL: not now. too_late: there is no way back, and nothing was changed.
CREATE OR REPLACE FUNCTION outbox.turn_back(
    p_saga uuid, p_error text DEFAULT NULL, p_why text DEFAULT NULL, p_by text DEFAULT NULL, OUT status text, OUT too_late boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_saga outbox.sagas;
    v_row  outbox.messages;
    v_sent boolean;
    v_there boolean;
    v_to   text;
    v_lost integer;
    v_since double precision;   -- since it died, in seconds
BEGIN
    too_late := false;
    SELECT * INTO v_saga FROM outbox.sagas s WHERE s.id = p_saga;
    IF v_saga.status = 'running' THEN
        SELECT * INTO v_row FROM outbox.messages m
         WHERE m.id = v_saga.message AND m.endpoint = v_saga.steps -> v_saga.at_step ->> 'to';
        v_there := FOUND;
        v_to := v_saga.steps -> v_saga.at_step ->> 'to';
        INSERT INTO outbox.lanes (topic, endpoint) VALUES ('saga:' || v_saga.name, v_to) ON CONFLICT (topic, endpoint) DO NOTHING;
        PERFORM FROM outbox.lanes l WHERE l.topic = 'saga:' || v_saga.name AND l.endpoint = v_to FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN RETURN; END IF;
        -- Under the lock, in new snapshots: what is leased now stays leased.
        IF EXISTS (SELECT FROM outbox.leases l
                    WHERE l.topic = 'saga:' || v_saga.name AND l.lane_endpoint = v_to AND v_saga.message = ANY (l.ids))
        THEN RETURN; END IF;
        -- Of one whose message somebody removed by hand nobody knows.
        v_sent := true;
        v_lost := 0;
        IF v_there THEN
            SELECT * INTO v_row FROM outbox.messages m WHERE m.id = v_row.id AND m.endpoint = v_row.endpoint FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN RETURN; END IF;
            v_sent := v_row.attempts + v_row.lost + v_row.throttled + v_row.generation > 0;
            v_lost := v_row.lost;
        END IF;
    ELSIF v_saga.status = 'parked' THEN
        SELECT d.lost, extract(epoch FROM clock_timestamp() - d.died_at)::double precision INTO v_lost, v_since
          FROM outbox.dead_letters d WHERE d.id = v_saga.message;
    END IF;
    -- What it is now, and not what it was before the locks.
    SELECT * INTO v_saga FROM outbox.sagas s
     WHERE s.id = p_saga AND s.status = v_saga.status AND s.message IS NOT DISTINCT FROM v_saga.message FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    IF v_saga.status = 'new' THEN
        UPDATE outbox.sagas s
           SET status = 'compensated', finished_at = clock_timestamp(), error = p_error
         WHERE s.id = p_saga;
        status := 'compensated';
    ELSIF v_saga.status IN ('running', 'parked') AND v_saga.phase = 'do' THEN
        SELECT m.status INTO status
          FROM outbox.move_saga(p_saga,
                   CASE WHEN coalesce(v_sent, v_saga.trail -> -1 ->> 'event' <> 'refused') THEN 'back_unknown' ELSE 'back_unsent' END,
                   p_error => p_error, p_why => p_why, p_by => p_by,
                   p_delay => CASE WHEN v_lost > 0 THEN greatest(0, coalesce(
                       (v_saga.steps -> v_saga.at_step ->> 'timeout')::double precision,
                       (SELECT e.timeout FROM outbox.endpoints e WHERE e.endpoint = v_saga.steps -> v_saga.at_step ->> 'to'), 60)
                       - coalesce(v_since, 0)) ELSE 0 END) m;
        too_late := status IS NULL;
        IF too_late THEN RETURN; END IF;
        PERFORM outbox.ensure_partitions();
        WITH gone AS (
            DELETE FROM outbox.messages m WHERE m.id = v_saga.message AND m.endpoint = v_saga.steps -> v_saga.at_step ->> 'to'
            RETURNING m.id, m.seq, m.generation, m.topic, m.endpoint, m.key
        ), forgotten AS (
            DELETE FROM outbox.dead_letters d WHERE d.id = v_saga.message
            RETURNING d.id, d.seq, d.generation, d.topic, d.endpoint, d.key
        )
        INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key, outcome, settlement,
            reason, relay)
        SELECT clock_timestamp(), interval '0', g.id, g.seq, g.generation, 0, g.topic, g.endpoint, g.key, 'cancelled', 'cancelled',
               coalesce(p_why, p_error, 'its deadline is over'), coalesce(p_by, 'outbox')
          FROM (SELECT * FROM gone UNION ALL SELECT * FROM forgotten) g;
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.turn_back IS 'Private. Turns a saga back that is to go back.';
