-- The beats of all other relays: one that stays the same for a whole lease time is dead.
-- $1 the observer's own relay uuid.
SELECT r.relay, r.name, r.beat, extract(epoch FROM r.lease_time)::double precision AS lease_seconds
  FROM outbox.relays r
 WHERE r.relay <> $1
