-- The lanes that a relay found and can't deliver: their topic has no route in its configuration, or their endpoint is not there.
-- $1 relay uuid, $2 topics text[] and $3 lane endpoints text[], in step.
UPDATE outbox.relays r
   SET unrouted_topics = $2, unrouted_endpoints = $3
 WHERE r.relay = $1
