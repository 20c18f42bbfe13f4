-- The beat that keeps all leases of a relay, and a look at the others: one whose beat stays the same for a whole lease time is dead.
-- $1 relay uuid. Returns one row for each other relay, one at least: mine (its own new beat, NULL if it was reaped), relay, name, beat,
-- lease_seconds (NULL where there is no other).
WITH mine AS (
    UPDATE outbox.relays r
       SET beat = r.beat + 1, beat_at = clock_timestamp()
     WHERE r.relay = $1
    RETURNING r.beat
)
SELECT m.beat AS mine, o.relay, o.name, o.beat, extract(epoch FROM o.lease_time)::double precision AS lease_seconds
  FROM (VALUES (true)) AS one (there)
  LEFT JOIN mine m ON true
  LEFT JOIN outbox.relays o ON o.relay <> $1
