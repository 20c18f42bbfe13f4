-- Takes everything from a relay that the caller has seen to be dead.
--
-- Guard: the relay's row is locked and its beat compared with the one that the caller watched: one that beat since is
-- alive, and nothing happens. Claims lock the same row first, so no lease can appear behind this.
-- Each message that was leased is due again at once, has lost one relay more, and gets an attempt of outcome lost. One
-- that has lost more than p_max_lost relays is a dead letter: it may be the one that kills them.
-- Locks: relay, leases by number, messages by (id, endpoint), as everywhere.
--
-- Returns reaped (false: it lives, or another relay was faster), and how many messages were taken and are dead.
CREATE OR REPLACE FUNCTION outbox.reap(
    p_relay uuid, p_beat bigint, p_max_lost integer,
    OUT reaped boolean, OUT lost integer, OUT dead integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_name  text;
    v_now   timestamptz;
    v_lease outbox.leases;
    v_ids   uuid[];
    v_dead  uuid[];       -- of one lease
    v_places integer[];   -- how many these are
    v_steps  uuid[];      -- those of them that are steps of sagas
    v_undone uuid[];      -- those of them whose sagas go back
    v_history boolean := true;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.reap needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    reaped := false;
    lost := 0;
    dead := 0;
    SELECT r.name INTO v_name FROM outbox.relays r WHERE r.relay = p_relay AND r.beat = p_beat FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    v_ids := ARRAY(
        SELECT i.id
          FROM (SELECT l.ids FROM outbox.leases l WHERE l.relay = p_relay ORDER BY l.lease FOR UPDATE) l
         CROSS JOIN LATERAL unnest(l.ids) AS i (id)
    );
    PERFORM FROM outbox.messages m WHERE m.id = ANY (v_ids) ORDER BY m.id, m.endpoint FOR UPDATE;
    v_now := clock_timestamp();

    FOR v_lease IN SELECT * FROM outbox.leases l WHERE l.relay = p_relay ORDER BY l.lease LOOP
        LOOP
            BEGIN
                SELECT coalesce(array_agg(m.id), '{}'), array_agg(m.id) FILTER (WHERE m.step IS NOT NULL)
                  INTO v_dead, v_steps
                  FROM outbox.messages m
                 WHERE m.id = ANY (v_lease.ids) AND m.endpoint = v_lease.lane_endpoint AND m.lost >= p_max_lost;
                v_undone := '{}';
                IF v_steps IS NOT NULL THEN
                    v_places := ARRAY[cardinality(v_steps)];
                    v_undone := ARRAY(SELECT unnest(v_steps) EXCEPT SELECT unnest((outbox.advance(
                        v_steps, array_fill('unknown'::text, v_places), NULL,
                        array_fill(format('relay %s died with it', v_name), v_places))).parked));
                    v_dead := ARRAY(SELECT unnest(v_dead) EXCEPT SELECT unnest(v_undone));
                END IF;
                v_places := ARRAY[cardinality(v_dead)];
                WITH taken AS (
                    UPDATE outbox.messages m
                       SET lost = m.lost + 1, due_at = v_now, last_error = format('relay %s died with it', v_name),
                           sent_to = CASE WHEN m.endpoint = '' THEN v_lease.endpoint ELSE m.sent_to END
                     WHERE m.id = ANY (v_lease.ids) AND m.endpoint = v_lease.lane_endpoint AND m.lost < p_max_lost
                    RETURNING m.*
                ), undone AS (
                    DELETE FROM outbox.messages m
                     WHERE m.id = ANY (v_undone) AND m.endpoint = v_lease.lane_endpoint
                    RETURNING m.*
                ), given_up AS MATERIALIZED (
                    SELECT b.*
                      FROM outbox.bury(v_lease.lane_endpoint, v_dead, v_dead,
                                       array_fill(v_lease.endpoint, v_places), array_fill('lost'::text, v_places), NULL,
                                       array_fill(format('relay %s died with it', v_name), v_places),
                                       NULL, array_fill(1, v_places), array_fill(v_lease.hold, v_places), v_now) b
                     WHERE cardinality(v_dead) > 0
                ), told AS (
                    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key,
                        outcome, settlement, reason, relay, error)
                    SELECT v_now, interval '0', s.id, s.seq, s.generation, s.attempt, s.topic, v_lease.endpoint, s.key,
                           'lost', s.settlement, CASE WHEN s.settlement <> 'retry' THEN 'lost' END,
                           v_name, format('relay %s died with it', v_name)
                      FROM (SELECT t.id, t.seq, t.generation, t.attempts + t.lost + t.throttled AS attempt, t.topic, t.key,
                                   'retry' AS settlement
                              FROM taken t
                            UNION ALL
                            SELECT u.id, u.seq, u.generation, u.attempts + u.lost + u.throttled + 1, u.topic, u.key, 'undo'
                              FROM undone u
                            UNION ALL
                            SELECT g.id, g.seq, g.generation, g.tries, g.topic, g.key, 'dead'
                              FROM given_up g) s
                     WHERE v_history
                )
                SELECT reap.lost + (SELECT count(*) FROM taken) + (SELECT count(*) FROM given_up) + (SELECT count(*) FROM undone),
                       reap.dead + (SELECT count(*) FROM given_up)
                  INTO reap.lost, reap.dead;
                EXIT;
            EXCEPTION
                WHEN deadlock_detected OR lock_not_available OR serialization_failure THEN RAISE;
                WHEN OTHERS THEN
                    IF NOT v_history THEN RAISE; END IF;
                    v_history := false; -- as in outbox.settle: history never stands in the way
            END;
        END LOOP;
    END LOOP;

    DELETE FROM outbox.leases l WHERE l.relay = p_relay;
    DELETE FROM outbox.relays r WHERE r.relay = p_relay;
    reaped := true;
END
$$;
COMMENT ON FUNCTION outbox.reap IS 'Private. Takes everything from a relay that died.';
