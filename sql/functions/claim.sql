-- Takes due rows of one lane for one endpoint under a new lease.
--
-- Model: two locks make a claim exclusive, the endpoint's row (what holds across replicas) and the lane's row (a row is
-- leased once, whatever configuration a relay runs). Both are tried, never waited for. Everything after the locks reads in
-- new snapshots, one per statement: with the snapshot of the lock statement a lease that was committed while the lock
-- was being gained would be missed. Leases are read before the messages that they are compared with, and before held keys, since
-- a settle moves a row from the first to the others.
-- Authority: the lock on the relay's own row comes first, so that no lease can appear behind a reap; the epoch and the
-- session say that what the caller remembers still holds.
-- Failure: a claim whose commit is unknown to its relay is undone by outbox.recover.
--
-- Parameters: who (relay, session, epoch); the lane (topic, lane) and the destination (endpoint); in_order = the head
-- rule holds, hold = a head that dies closes its key; limit and bytes bound the batch; chain bounds the rows of one key
-- in it; the floors as returned by the last claim, or 0, NULL and 0 for a full sweep (a waiting row's place is its due time
-- and seq: many rows share a due time); open_keys = keys that a settle opened since. For all relays together:
-- max_in_flight of the endpoint (NULL = no limit); probes = how many may be on their way while the breaker is half open, NULL
-- for a caller without a breaker, who is not bound by what others made of it;
-- ramp = for how many seconds after it closed the number in flight grows, to ramp_to; endpoint_floor = where the
-- endpoint's leases start.
--
-- Returns one row. state: claimed; empty; busy (a lock is taken: try again soon); saturated (as many in flight as may be);
-- paused, not_before, open (closed: try again when next_due_in is over, or later); missing (the lane's or the endpoint's
-- row is not there); relay_gone, other_session, other_epoch (the caller must register or recover). breaker: closed,
-- watched (closed, with failures in its window), half_open or open. left_keys: see outbox.pick_in_order.
-- others: other relays have leases of the lane. next_due_in:
-- seconds until the lane has something due, NULL if nothing waits; known when dry.
CREATE OR REPLACE FUNCTION outbox.claim(
    p_relay uuid, p_session integer, p_epoch uuid,
    p_topic text, p_lane text, p_endpoint text, p_in_order boolean, p_hold boolean,
    p_limit integer, p_bytes bigint, p_chain integer,
    p_ready_floor bigint, p_waiting_floor timestamptz, p_waiting_seq bigint, p_lease_floor bigint, p_open_keys text[],
    p_max_in_flight integer, p_probes integer, p_ramp double precision, p_ramp_to integer, p_endpoint_floor bigint,
    OUT state text, OUT lease bigint, OUT ids uuid[],
    OUT ready_floor bigint, OUT waiting_floor timestamptz, OUT waiting_seq bigint, OUT lease_floor bigint,
    OUT dry boolean, OUT next_due_in double precision, OUT left_keys text[], OUT others boolean, OUT breaker text, OUT endpoint_floor bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_session  integer;
    v_epoch    uuid;
    v_endpoint outbox.endpoints;
    v_now      timestamptz;
    v_busy     uuid[];
    v_other    text;
    v_in_flight integer;
    v_room     integer;
    v_limit    integer := p_limit;
    v_suspects boolean;
    v_suspect  uuid;
    v_keys     text[];
    v_alone    boolean := false;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox.claim needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    ids := '{}';

    SELECT r.session, (SELECT e.epoch FROM outbox.epoch e WHERE e.only_row)
      INTO v_session, v_epoch
      FROM outbox.relays r WHERE r.relay = p_relay FOR KEY SHARE OF r;
    IF NOT FOUND THEN state := 'relay_gone'; RETURN; END IF;
    IF v_session <> p_session THEN state := 'other_session'; RETURN; END IF;
    IF v_epoch IS DISTINCT FROM p_epoch THEN state := 'other_epoch'; RETURN; END IF;

    SELECT * INTO v_endpoint FROM outbox.endpoints e WHERE e.endpoint = p_endpoint FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        state := CASE WHEN EXISTS (SELECT FROM outbox.endpoints e WHERE e.endpoint = p_endpoint) THEN 'busy' ELSE 'missing' END;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    IF v_endpoint.paused_at IS NOT NULL THEN state := 'paused'; RETURN; END IF;
    IF v_endpoint.not_before > v_now THEN
        state := 'not_before';
        next_due_in := extract(epoch FROM v_endpoint.not_before) - extract(epoch FROM v_now);
        RETURN;
    END IF;
    breaker := CASE WHEN p_probes IS NULL THEN 'closed' ELSE v_endpoint.breaker END;
    IF breaker = 'open' AND v_endpoint.breaker_until > v_now THEN
        state := 'open';
        next_due_in := extract(epoch FROM v_endpoint.breaker_until) - extract(epoch FROM v_now);
        RETURN;
    END IF;

    -- How many more may be on their way to this endpoint. Its row is locked, so no other claim can add to them.
    v_room := CASE
        WHEN breaker <> 'closed' THEN p_probes
        WHEN p_probes IS NOT NULL AND v_endpoint.closed_at + make_interval(secs => p_ramp) > v_now
            THEN least(p_max_in_flight, greatest(p_probes,
                 ceil(p_ramp_to * extract(epoch FROM v_now - v_endpoint.closed_at)::double precision / p_ramp)::integer))
        ELSE p_max_in_flight END;
    IF v_room IS NOT NULL THEN
        SELECT coalesce(sum(cardinality(l.ids)), 0), min(l.lease)
          INTO v_in_flight, endpoint_floor
          FROM outbox.leases l
         WHERE l.endpoint = p_endpoint AND l.lease >= p_endpoint_floor;
        endpoint_floor := coalesce(endpoint_floor, p_endpoint_floor);
        v_limit := least(p_limit, v_room - v_in_flight);
        IF v_limit <= 0 THEN
            -- For outbox.why: the limit stands in the relays' configuration alone. A crash may forget it.
            IF v_room = p_max_in_flight AND (v_endpoint.saturated_at IS NULL OR v_endpoint.saturated_at < v_now - interval '1 second') THEN
                UPDATE outbox.endpoints e SET saturated_at = v_now, saturated_with = v_room WHERE e.endpoint = p_endpoint;
                PERFORM set_config('synchronous_commit', 'off', true);
            END IF;
            state := 'saturated';
            RETURN;
        END IF;
    END IF;

    PERFORM FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = p_lane FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        state := CASE WHEN EXISTS (SELECT FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = p_lane)
                      THEN 'busy' ELSE 'missing' END;
        RETURN;
    END IF;

    -- The lane's lock makes the floor of leases exact: a lease of this lane with a lower number can't come any more.
    --
    -- A claim from floors meets no row of a lease whose own scans ended at or below them: mostly that is all there is. Where keys
    -- keep their order, the rows that have one are not looked for by id.
    --
    -- A row that relays died with goes alone, one at a time per relay. While one is on its way the scans leave the others
    -- out, or a window that is full of them would hide what is behind.
    SELECT min(l.lease), coalesce(bool_or(l.relay <> p_relay), false),
           ARRAY(
               SELECT i.id
                 FROM outbox.leases b CROSS JOIN LATERAL unnest(b.ids, b.keys) AS i (id, key)
                WHERE b.topic = p_topic AND b.lane_endpoint = p_lane AND b.lease >= p_lease_floor
                  AND (b.ready_end IS NULL OR b.ready_end > p_ready_floor
                       OR (b.waiting_end, b.waiting_end_seq) > (coalesce(p_waiting_floor, '-infinity'), p_waiting_seq))
                  AND (NOT p_in_order OR cardinality(b.keys) = 0 OR '' = ANY (b.keys))
                  AND (NOT p_in_order OR i.key IS NULL OR i.key = '')),
           NOT EXISTS (SELECT FROM outbox.leases a WHERE a.relay = p_relay AND a.alone)
      INTO lease_floor, others, v_busy, v_suspects
      FROM outbox.leases l
     WHERE l.topic = p_topic AND l.lane_endpoint = p_lane AND l.lease >= p_lease_floor;

    -- A key can live in two lanes that lead to one endpoint, after its topic got one endpoint more or less: that of the topic and
    -- that of fan-out. Then it is closed here while the other lane has a lease on it, holds it, or has an earlier row of it.
    -- Only fan-out fills the other lane, under the lock of this one; its lane is made before.
    IF p_in_order THEN
        v_other := CASE WHEN p_lane <> '' THEN ''
                        WHEN EXISTS (SELECT FROM outbox.lanes l WHERE l.topic = p_topic AND l.endpoint = p_endpoint)
                        THEN p_endpoint END;
    END IF;

    v_now := clock_timestamp();
    IF p_in_order THEN
        SELECT p.ids, p.keys, p.suspect, p.ready_floor, p.waiting_floor, p.waiting_seq, p.dry, p.left_keys
          INTO ids, v_keys, v_suspect, ready_floor, waiting_floor, waiting_seq, dry, left_keys
          FROM outbox.pick_in_order(p_topic, p_lane, v_now, v_limit, p_bytes, p_chain,
                                    p_ready_floor, coalesce(p_waiting_floor, '-infinity'), p_waiting_seq,
                                    v_busy, coalesce(lease_floor, p_lease_floor), p_open_keys, v_suspects,
                                    v_other, p_endpoint) p;
    ELSE
        SELECT p.ids, p.keys, p.suspect, p.ready_floor, p.waiting_floor, p.waiting_seq, p.dry
          INTO ids, v_keys, v_suspect, ready_floor, waiting_floor, waiting_seq, dry
          FROM outbox.pick_unordered(p_topic, p_lane, v_now, v_limit, p_bytes,
                                     p_ready_floor, coalesce(p_waiting_floor, '-infinity'), p_waiting_seq,
                                     v_busy, v_suspects, 1) p;
    END IF;

    -- It goes before the others: they wait for one claim.
    IF v_suspect IS NOT NULL THEN
        v_alone := true;
        ids := ARRAY[v_suspect];
        v_keys := ARRAY(SELECT coalesce(m.key, '') FROM outbox.messages m WHERE m.id = v_suspect AND m.endpoint = p_lane);
        ready_floor := p_ready_floor;
        waiting_floor := p_waiting_floor;
        waiting_seq := p_waiting_seq;
        left_keys := p_open_keys;
        dry := false;
    END IF;

    IF cardinality(ids) = 0 THEN
        state := 'empty';
        lease_floor := coalesce(lease_floor, p_lease_floor);
    ELSE
        state := 'claimed';
        INSERT INTO outbox.leases (relay, topic, lane_endpoint, endpoint, alone, hold, ready_end, waiting_end, waiting_end_seq,
            ids, keys)
        VALUES (p_relay, p_topic, p_lane, p_endpoint, v_alone, p_hold,
                -- Where the scans chose the rows, these lie at or below the floors that come next. Not so those of a key.
                CASE WHEN NOT v_alone AND NOT p_in_order THEN claim.ready_floor END, claim.waiting_floor, claim.waiting_seq,
                claim.ids, v_keys)
        RETURNING leases.lease INTO claim.lease;
        lease_floor := coalesce(lease_floor, claim.lease);
        IF breaker = 'open' THEN
            -- Its pause is over: these are the probes.
            UPDATE outbox.endpoints e SET breaker = 'half_open' WHERE e.endpoint = p_endpoint;
        END IF;
        -- A claim that a crash forgets is claimed again; the epoch tells its relay.
        PERFORM set_config('synchronous_commit', 'off', true);
        -- For sql/load.sql, in this transaction.
        PERFORM set_config('outbox.claimed', claim.lease::text, true);
    END IF;
    IF breaker = 'open' THEN
        breaker := 'half_open';
    ELSIF breaker = 'closed' AND p_probes IS NOT NULL AND v_endpoint.failures > 0 THEN
        breaker := 'watched';
    END IF;
    -- The client's clock type has no infinity.
    IF waiting_floor = '-infinity' THEN waiting_floor := NULL; waiting_seq := 0; END IF;
    IF dry THEN
        next_due_in := (SELECT extract(epoch FROM m.due_at) - extract(epoch FROM v_now)
                          FROM outbox.messages m
                         WHERE m.topic = p_topic AND m.endpoint = p_lane AND m.due_at IS NOT NULL AND m.due_at > v_now
                         ORDER BY m.due_at, m.seq LIMIT 1);
    END IF;
END
$$;
COMMENT ON FUNCTION outbox.claim IS 'Private. Takes due rows of one lane for one endpoint under a new lease.';
