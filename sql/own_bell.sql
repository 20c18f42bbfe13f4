-- Says which sessions a relay is about to keep the bell with.
-- $1 relay uuid, $2 their process ids int[].
UPDATE outbox.relays r SET bell_pids = $2 WHERE r.relay = $1
