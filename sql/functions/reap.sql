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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_name  text;
    v_now   timestamptz;
    v_lease outbox.leases;
    v_ids   uuid[];
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
                WITH taken AS (
                    UPDATE outbox.messages m
                       SET lost = m.lost + 1, due_at = v_now, last_error = format('relay %s died with it', v_name),
                           sent_to = CASE WHEN m.endpoint = '' THEN v_lease.endpoint ELSE m.sent_to END
                     WHERE m.id = ANY (v_lease.ids) AND m.endpoint = v_lease.lane_endpoint AND m.lost < p_max_lost
                    RETURNING m.*
                ), given_up AS (
                    DELETE FROM outbox.messages m
                     WHERE m.id = ANY (v_lease.ids) AND m.endpoint = v_lease.lane_endpoint AND m.lost >= p_max_lost
                    RETURNING m.*
                ), buried AS (
                    INSERT INTO outbox.dead_letters AS d (id, lane_endpoint, died_at, created_at, expires_at, seq, attempts,
                        lost, throttled, generation, size, topic, endpoint, reason, key, type, content_type, headers,
                        payload, body, last_error, sent_to)
                    SELECT g.id, g.endpoint, v_now, g.created_at, g.expires_at, g.seq, g.attempts, g.lost + 1, g.throttled,
                           g.generation, g.size, g.topic, v_lease.endpoint, 'lost', g.key, g.type, g.content_type, g.headers,
                           g.payload, g.body, format('relay %s died with it', v_name), g.sent_to
                      FROM given_up g
                    ON CONFLICT (id, lane_endpoint) DO UPDATE
                       SET died_at = excluded.died_at, created_at = excluded.created_at, expires_at = excluded.expires_at,
                           seq = excluded.seq, attempts = excluded.attempts, lost = excluded.lost,
                           throttled = excluded.throttled, generation = excluded.generation, size = excluded.size,
                           status = excluded.status, topic = excluded.topic, endpoint = excluded.endpoint,
                           reason = excluded.reason, key = excluded.key, type = excluded.type,
                           content_type = excluded.content_type, headers = excluded.headers, payload = excluded.payload,
                           body = excluded.body, last_error = excluded.last_error, sent_to = excluded.sent_to
                ), held AS (
                    INSERT INTO outbox.held_keys (topic, lane_endpoint, key, endpoint, id, seq)
                    SELECT g.topic, g.endpoint, g.key, v_lease.endpoint, g.id, g.seq
                      FROM given_up g
                     WHERE v_lease.hold AND g.key IS NOT NULL
                     ORDER BY g.topic, g.key, g.seq
                    ON CONFLICT (topic, lane_endpoint, key) DO NOTHING
                ), told AS (
                    INSERT INTO outbox.attempts (started_at, duration, id, seq, generation, attempt, topic, endpoint, key,
                        outcome, settlement, reason, relay, error)
                    SELECT v_now, interval '0', s.id, s.seq, s.generation, s.attempt, s.topic, v_lease.endpoint, s.key,
                           'lost', CASE WHEN s.is_dead THEN 'dead' ELSE 'retry' END, CASE WHEN s.is_dead THEN 'lost' END,
                           v_name, format('relay %s died with it', v_name)
                      FROM (SELECT t.id, t.seq, t.generation, t.attempts + t.lost AS attempt, t.topic, t.key, false AS is_dead
                              FROM taken t
                            UNION ALL
                            SELECT g.id, g.seq, g.generation, g.attempts + g.lost + 1, g.topic, g.key, true
                              FROM given_up g) s
                     WHERE v_history
                )
                SELECT reap.lost + (SELECT count(*) FROM taken) + (SELECT count(*) FROM given_up),
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
