-- The beat that keeps all leases of a relay.
-- $1 relay uuid. Returns its new beat; no row if the relay was reaped.
UPDATE outbox.relays r
   SET beat = r.beat + 1, beat_at = clock_timestamp()
 WHERE r.relay = $1
RETURNING r.beat
