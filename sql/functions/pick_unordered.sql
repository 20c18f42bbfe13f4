-- Chooses the rows of a claim where order does not matter. Private: outbox.claim and outbox.expand call
-- it, under their locks.
--
-- Retries and fresh rows are taken in turn, so that neither starves the other; each scan starts at its floor and ends at
-- the limit. Rows that more than p_together relays died with are not taken: where p_suspects, one of them is named as the
-- suspect.
--
-- Returns the rows, ascending by id, with their keys ('' for none; an empty array if none has one); the floors for the
-- next claim, which pass every row that was chosen or passed over; dry = nothing more was found above the floors.
CREATE OR REPLACE FUNCTION outbox.pick_unordered(
    p_topic text, p_lane text, p_now timestamptz, p_limit integer, p_bytes bigint,
    p_ready_floor bigint, p_waiting_floor timestamptz, p_waiting_seq bigint, p_busy uuid[], p_suspects boolean, p_together integer,
    OUT ids uuid[], OUT keys text[], OUT suspect uuid,
    OUT ready_floor bigint, OUT waiting_floor timestamptz, OUT waiting_seq bigint, OUT dry boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    w_ids  uuid[]; w_keys text[]; w_sizes integer[]; w_lost integer[]; w_due timestamptz[]; w_seq bigint[];
    r_ids  uuid[]; r_keys text[]; r_sizes integer[]; r_lost integer[]; r_seq bigint[];
    w_bytes bigint; w_most integer; w_named bigint;
    r_bytes bigint; r_most integer; r_named bigint;
    w_left integer; r_left integer; -- the first of each list that the limits cut off
BEGIN
    SELECT array_agg(w.id), array_agg(w.key), array_agg(w.size), array_agg(w.lost), array_agg(w.due_at), array_agg(w.seq),
           coalesce(sum(w.size), 0), coalesce(max(w.lost), 0), count(w.key)
      INTO w_ids, w_keys, w_sizes, w_lost, w_due, w_seq, w_bytes, w_most, w_named
      FROM (SELECT m.id, m.key, m.size, m.lost, m.due_at, m.seq
              FROM outbox.messages m
             WHERE m.topic = p_topic AND m.endpoint = p_lane
               AND m.due_at IS NOT NULL AND (m.due_at, m.seq) > (p_waiting_floor, p_waiting_seq) AND m.due_at <= p_now
               AND (m.lost <= p_together OR p_suspects)
               AND m.id NOT IN (SELECT unnest(p_busy))
             ORDER BY m.due_at, m.seq
             LIMIT p_limit) w;

    SELECT array_agg(r.id), array_agg(r.key), array_agg(r.size), array_agg(r.lost), array_agg(r.seq),
           coalesce(sum(r.size), 0), coalesce(max(r.lost), 0), count(r.key)
      INTO r_ids, r_keys, r_sizes, r_lost, r_seq, r_bytes, r_most, r_named
      FROM (SELECT m.id, m.key, m.size, m.lost, m.seq
              FROM outbox.messages m
             WHERE m.topic = p_topic AND m.endpoint = p_lane
               AND m.due_at IS NULL AND m.seq > p_ready_floor
               AND (m.lost <= p_together OR p_suspects)
               AND m.id NOT IN (SELECT unnest(p_busy))
             ORDER BY m.seq
             LIMIT p_limit) r;

    IF coalesce(cardinality(w_ids), 0) + coalesce(cardinality(r_ids), 0) <= p_limit AND w_bytes + r_bytes <= p_bytes
       AND greatest(w_most, r_most) <= p_together THEN
        -- Under load it is mostly that simple: all of them.
        SELECT coalesce(array_agg(a.id), '{}'), CASE WHEN w_named + r_named > 0 THEN array_agg(coalesce(a.key, '')) ELSE '{}' END
          INTO ids, keys
          FROM (SELECT u.id, u.key FROM unnest(w_ids || r_ids, w_keys || r_keys) AS u (id, key) ORDER BY u.id) a;
    ELSE
        WITH candidate AS (
            SELECT w.id, w.key, w.size, w.n, 0 AS source
              FROM unnest(w_ids, w_keys, w_sizes, w_lost) WITH ORDINALITY AS w (id, key, size, lost, n) WHERE w.lost <= p_together
            UNION ALL
            SELECT r.id, r.key, r.size, r.n, 1
              FROM unnest(r_ids, r_keys, r_sizes, r_lost) WITH ORDINALITY AS r (id, key, size, lost, n) WHERE r.lost <= p_together
        ), turn AS (
            SELECT c.*, row_number() OVER w AS place, sum(c.size) OVER w AS bytes
              FROM candidate c
            WINDOW w AS (ORDER BY c.n, c.source ROWS UNBOUNDED PRECEDING)
        ), cut AS (
            SELECT t.*, t.place <= p_limit AND (t.place = 1 OR t.bytes <= p_bytes) AS taken FROM turn t
        )
        SELECT coalesce(array_agg(c.id ORDER BY c.id) FILTER (WHERE c.taken), '{}'),
               coalesce(CASE WHEN count(c.key) FILTER (WHERE c.taken) > 0
                             THEN array_agg(coalesce(c.key, '') ORDER BY c.id) FILTER (WHERE c.taken) END, '{}'),
               min(c.n) FILTER (WHERE NOT c.taken AND c.source = 0),
               min(c.n) FILTER (WHERE NOT c.taken AND c.source = 1)
          INTO ids, keys, w_left, r_left
          FROM cut c;
    END IF;

    IF p_suspects AND greatest(w_most, r_most) > p_together THEN
        suspect := (SELECT s.id FROM unnest(w_ids || r_ids, w_lost || r_lost) WITH ORDINALITY AS s (id, lost, n)
                     WHERE s.lost > p_together ORDER BY s.n LIMIT 1);
    END IF;

    -- Both lists are cut to a prefix, so what stands before the first row left behind is done with.
    waiting_floor := coalesce(w_due[coalesce(w_left - 1, cardinality(w_due))], p_waiting_floor);
    waiting_seq   := coalesce(w_seq[coalesce(w_left - 1, cardinality(w_seq))], p_waiting_seq);
    ready_floor   := coalesce(r_seq[coalesce(r_left - 1, cardinality(r_seq))], p_ready_floor);
    dry := w_left IS NULL AND r_left IS NULL
       AND coalesce(cardinality(w_ids), 0) < p_limit AND coalesce(cardinality(r_ids), 0) < p_limit;
END
$$;
COMMENT ON FUNCTION outbox.pick_unordered IS 'Private. The choice of a claim in a lane without order.';
