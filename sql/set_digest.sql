-- What tells a relay's configuration from another, after a reload.
-- $1 relay uuid, $2 digest text. No row is there if the relay was reaped; then it registers anew with the new one.
UPDATE outbox.relays r
   SET config_digest = $2
 WHERE r.relay = $1
