-- Chooses the rows of a claim where the rows of one key must be sent in the order of seq, one at a time. Private: only
-- outbox.claim calls it, under its locks.
--
-- The head rule: of a key, only its earliest live row may be claimed, and then what follows it, never past the first live
-- row that is not yet due. Live is what is due or was tried; a row that the application scheduled for later and nobody
-- tried is not live yet. The head is found by one probe of the keyed index per key and claim, never by a list that would
-- have to be kept in step. A key is closed while it is leased or held; rows without a key are unordered.
--
-- Where p_other names a second lane that leads to p_endpoint, what is held there or has an earlier live row there is closed
-- too. Earlier only: two rows that wait for each other would wait for ever.
--
-- The scans look at a window of rows from their floors and do not skip rows of closed keys, or 100,000 rows of one closed
-- key would be read at every claim. Such rows are passed over: who opens a key names it in p_open_keys at the next
-- claim, which probes it directly. A window that brought too few keys is read once more, larger. No more keys are asked for
-- than the claim could take: those beyond are left for the next one.
--
-- Returns the rows, ascending by id, with their keys ('' for none); left_keys = those of p_open_keys that the limits left
-- behind, to be named again, since their rows may lie below the floors; the floors for the next claim, which stop before the
-- first row of an open key that the limits left behind; dry = nothing more was found above the floors.
CREATE OR REPLACE FUNCTION outbox.pick_in_order(
    p_topic text, p_lane text, p_now timestamptz, p_limit integer, p_bytes bigint, p_chain integer,
    p_ready_floor bigint, p_waiting_floor timestamptz, p_waiting_seq bigint,
    p_busy uuid[], p_lease_floor bigint, p_open_keys text[], p_suspects boolean, p_other text, p_endpoint text,
    OUT ids uuid[], OUT keys text[], OUT suspect uuid,
    OUT ready_floor bigint, OUT waiting_floor timestamptz, OUT waiting_seq bigint, OUT dry boolean, OUT left_keys text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    v_window integer := greatest(2 * p_limit, 100);
    w_ids  uuid[]; w_keys text[]; w_sizes integer[]; w_lost integer[]; w_due timestamptz[]; w_seq bigint[];
    r_ids  uuid[]; r_keys text[]; r_sizes integer[]; r_lost integer[]; r_seq bigint[];
    v_open text[];        -- those of p_open_keys that have rows, no more than the limit
    v_asked integer;      -- the place of the last of them
    v_behind text[];      -- those of p_open_keys behind it
    v_keys text[];        -- open keys in the order in which they were met
    v_closed text[];      -- those that were met and are leased
    v_beyond integer;     -- the place where the first key stands that is not among them
    v_chain integer;      -- rows to look at per key: no more than the limit could take
    v_left text[];        -- open keys of which nothing was taken though something could be
    v_full boolean;       -- the window has an end that is not the lane's
    w_left integer; r_left integer;
BEGIN
    -- Many an opened key has nothing more to send, and must not take the place of one that has. Those that nobody gets to are
    -- left for the next claim.
    SELECT coalesce(array_agg(o.key ORDER BY o.n), '{}'), max(o.n)
      INTO v_open, v_asked
      FROM (SELECT o.key, o.n
              FROM unnest(p_open_keys) WITH ORDINALITY AS o (key, n)
             WHERE (SELECT true FROM outbox.messages m
                     WHERE m.topic = p_topic AND m.endpoint = p_lane AND m.key = o.key
                     ORDER BY m.seq LIMIT 1)
             LIMIT p_limit) o;
    v_behind := CASE WHEN cardinality(v_open) >= p_limit THEN p_open_keys[v_asked + 1:] ELSE '{}' END;
    LOOP
        SELECT array_agg(w.id), array_agg(w.key), array_agg(w.size), array_agg(w.lost), array_agg(w.due_at), array_agg(w.seq)
          INTO w_ids, w_keys, w_sizes, w_lost, w_due, w_seq
          FROM (SELECT m.id, m.key, m.size, m.lost, m.due_at, m.seq
                  FROM outbox.messages m
                 WHERE m.topic = p_topic AND m.endpoint = p_lane
                   AND m.due_at IS NOT NULL AND (m.due_at, m.seq) > (p_waiting_floor, p_waiting_seq) AND m.due_at <= p_now
                   AND (m.lost <= 1 OR p_suspects)
                 ORDER BY m.due_at, m.seq
                 LIMIT v_window) w;

        SELECT array_agg(r.id), array_agg(r.key), array_agg(r.size), array_agg(r.lost), array_agg(r.seq)
          INTO r_ids, r_keys, r_sizes, r_lost, r_seq
          FROM (SELECT m.id, m.key, m.size, m.lost, m.seq
                  FROM outbox.messages m
                 WHERE m.topic = p_topic AND m.endpoint = p_lane
                   AND m.due_at IS NULL AND m.seq > p_ready_floor
                   AND (m.lost <= 1 OR p_suspects)
                 ORDER BY m.seq
                 LIMIT v_window) r;
        v_full := coalesce(cardinality(w_ids), 0) >= v_window OR coalesce(cardinality(r_ids), 0) >= v_window;

        -- In turn from the three sources: a hot key that is opened again and again must not keep cold ones waiting. Of the
        -- leased keys only those matter that were met; IS TRUE keeps the planner from making a join of it.
        WITH met AS MATERIALIZED (
            SELECT k.key, min(k.n) AS n
              FROM (SELECT o.key, o.n FROM unnest(v_open) WITH ORDINALITY AS o (key, n)
                    UNION ALL SELECT w.key, w.n FROM unnest(w_keys) WITH ORDINALITY AS w (key, n)
                    UNION ALL SELECT r.key, r.n FROM unnest(r_keys) WITH ORDINALITY AS r (key, n)) k
             WHERE k.key IS NOT NULL
             GROUP BY k.key
        ), closed AS MATERIALIZED (
            SELECT i.key
              FROM outbox.leases l CROSS JOIN LATERAL unnest(l.keys) AS i (key)
             WHERE l.topic = p_topic AND l.lane_endpoint = p_lane AND l.lease >= p_lease_floor
               AND (i.key IN (SELECT m.key FROM met m)) IS TRUE
            UNION ALL
            SELECT i.key
              FROM outbox.leases l CROSS JOIN LATERAL unnest(l.keys) AS i (key)
             WHERE p_other IS NOT NULL AND l.topic = p_topic AND l.lane_endpoint = p_other AND l.endpoint = p_endpoint
               AND (i.key IN (SELECT m.key FROM met m)) IS TRUE
        ), open AS (
            SELECT m.key, m.n, row_number() OVER (ORDER BY m.n, m.key) AS place
              FROM met m
             WHERE m.key NOT IN (SELECT c.key FROM closed c)
        )
        SELECT coalesce(array_agg(o.key ORDER BY o.place) FILTER (WHERE o.place <= p_limit), '{}'),
               min(o.n) FILTER (WHERE o.place > p_limit),
               ARRAY(SELECT c.key FROM closed c)
          INTO v_keys, v_beyond, v_closed
          FROM open o;
        EXIT WHEN NOT v_full OR v_beyond IS NOT NULL OR v_window >= 400
             OR cardinality(v_keys) + coalesce(cardinality(array_positions(w_keys, NULL)), 0)
                                    + coalesce(cardinality(array_positions(r_keys, NULL)), 0) >= p_limit;
        v_window := greatest(8 * p_limit, 400);
    END LOOP;
    left_keys := '{}';
    IF v_beyond IS NOT NULL AND cardinality(v_open) >= v_beyond THEN
        left_keys := ARRAY(SELECT o.key FROM unnest(v_open[v_beyond:]) AS o (key)
                            WHERE o.key NOT IN (SELECT unnest(v_keys)) AND o.key NOT IN (SELECT unnest(v_closed)));
    END IF;
    -- Held keys are read after the leases: a dead head enters here in the transaction in which its lease ends. One probe for each
    -- key: a planner that knows no better would read all of them for each.
    v_keys := ARRAY(
        SELECT k.key
          FROM unnest(v_keys) WITH ORDINALITY AS k (key, n)
         WHERE (SELECT true FROM outbox.held_keys h
                 WHERE h.topic = p_topic AND h.lane_endpoint = p_lane AND h.key = k.key) IS NULL
           AND (p_other IS NULL
                OR (SELECT true FROM outbox.held_keys h
                     WHERE h.topic = p_topic AND h.lane_endpoint = p_other AND h.key = k.key
                       AND h.endpoint IN (p_endpoint, '')) IS NULL)
         ORDER BY k.n
    );

    v_chain := least(p_chain, ceil(p_limit::double precision / greatest(cardinality(v_keys), 1)));

    WITH chain AS MATERIALIZED (
        SELECT k.key, k.n, h.id, h.size, h.lost, h.place, h.stopped,
               p_suspects AND h.place = 1 AND h.lost > 1 AND h.is_due AND NOT h.is_behind AS suspicious
          FROM unnest(v_keys) WITH ORDINALITY AS k (key, n)
          LEFT JOIN LATERAL (
                SELECT m.seq
                  FROM outbox.messages m
                 WHERE p_other IS NOT NULL AND m.topic = p_topic AND m.endpoint = p_other AND m.key = k.key
                   AND (m.due_at IS NULL OR m.due_at <= p_now
                        OR m.attempts > 0 OR m.lost > 0 OR m.throttled > 0 OR m.generation > 0)
                 ORDER BY m.seq
                 LIMIT 1) o ON true
         CROSS JOIN LATERAL (
                SELECT l.id, l.size, l.lost, l.is_due, coalesce(l.seq > o.seq, false) AS is_behind, row_number() OVER w AS place,
                       bool_or(NOT l.is_due OR l.lost > 1 OR coalesce(l.seq > o.seq, false)) OVER w AS stopped
                  FROM (SELECT m.id, m.seq, m.size, m.lost, coalesce(m.due_at <= p_now, true) AS is_due
                          FROM outbox.messages m
                         WHERE m.topic = p_topic AND m.endpoint = p_lane AND m.key = k.key
                           AND (m.due_at IS NULL OR m.due_at <= p_now
                                OR m.attempts > 0 OR m.lost > 0 OR m.throttled > 0 OR m.generation > 0)
                         ORDER BY m.seq
                         LIMIT v_chain) l
                WINDOW w AS (ORDER BY l.seq ROWS UNBOUNDED PRECEDING)) h
         WHERE NOT h.stopped OR (p_suspects AND h.place = 1 AND h.lost > 1 AND h.is_due AND NOT h.is_behind)
    ), candidate AS (
        SELECT c.id, c.key, c.size, c.place, c.n, 0 AS source FROM chain c WHERE NOT c.stopped
        UNION ALL
        SELECT w.id, NULL, w.size, 1, w.n, 1
          FROM unnest(w_ids, w_keys, w_sizes, w_lost) WITH ORDINALITY AS w (id, key, size, lost, n)
         WHERE w.key IS NULL AND w.lost <= 1 AND w.id NOT IN (SELECT unnest(p_busy))
        UNION ALL
        SELECT r.id, NULL, r.size, 1, r.n, 2
          FROM unnest(r_ids, r_keys, r_sizes, r_lost) WITH ORDINALITY AS r (id, key, size, lost, n)
         WHERE r.key IS NULL AND r.lost <= 1 AND r.id NOT IN (SELECT unnest(p_busy))
    ), turn AS (
        -- All heads before what follows them: as many keys in parallel as the limit allows.
        SELECT c.*, row_number() OVER w AS turn, sum(c.size) OVER w AS bytes
          FROM candidate c
        WINDOW w AS (ORDER BY c.place, c.n, c.source ROWS UNBOUNDED PRECEDING)
    ), cut AS (
        SELECT t.*, t.turn <= p_limit AND (t.turn = 1 OR t.bytes <= p_bytes) AS taken FROM turn t
    )
    SELECT coalesce(array_agg(c.id ORDER BY c.id) FILTER (WHERE c.taken), '{}'),
           coalesce(array_agg(coalesce(c.key, '') ORDER BY c.id) FILTER (WHERE c.taken), '{}'),
           coalesce(array_agg(c.key) FILTER (WHERE NOT c.taken AND c.place = 1 AND c.source = 0), '{}'),
           min(c.n) FILTER (WHERE NOT c.taken AND c.source = 1),
           min(c.n) FILTER (WHERE NOT c.taken AND c.source = 2),
           coalesce((SELECT c.id FROM chain c WHERE c.suspicious ORDER BY c.n LIMIT 1),
                    (SELECT s.id FROM unnest(w_ids || r_ids, w_keys || r_keys, w_lost || r_lost) AS s (id, key, lost)
                      WHERE p_suspects AND s.key IS NULL AND s.lost > 1 AND s.id NOT IN (SELECT unnest(p_busy)) LIMIT 1))
      INTO ids, keys, v_left, w_left, r_left, suspect
      FROM cut c;

    IF cardinality(v_left) > 0 THEN
        w_left := least(w_left, (SELECT min(w.n) FROM unnest(w_keys) WITH ORDINALITY AS w (key, n) WHERE w.key = ANY (v_left)));
        r_left := least(r_left, (SELECT min(r.n) FROM unnest(r_keys) WITH ORDINALITY AS r (key, n) WHERE r.key = ANY (v_left)));
        left_keys := ARRAY(SELECT o.key FROM unnest(v_open) AS o (key) WHERE o.key = ANY (v_left)) || left_keys;
    END IF;
    left_keys := left_keys || v_behind;
    IF v_beyond <= cardinality(w_ids) THEN w_left := least(w_left, v_beyond); END IF;
    IF v_beyond <= cardinality(r_ids) THEN r_left := least(r_left, v_beyond); END IF;
    waiting_floor := coalesce(w_due[coalesce(w_left - 1, cardinality(w_due))], p_waiting_floor);
    waiting_seq   := coalesce(w_seq[coalesce(w_left - 1, cardinality(w_seq))], p_waiting_seq);
    ready_floor   := coalesce(r_seq[coalesce(r_left - 1, cardinality(r_seq))], p_ready_floor);
    dry := w_left IS NULL AND r_left IS NULL AND v_beyond IS NULL AND cardinality(v_left) = 0 AND cardinality(v_behind) = 0
       AND NOT v_full;
END
$$;
COMMENT ON FUNCTION outbox.pick_in_order IS 'Private. The choice of a claim in a lane whose keys keep their order.';
