-- The relays that live or were not yet seen to be dead. Returns relay, name, version, config_digest, up_seconds,
-- beat_seconds (since the last beat), lease_seconds, leased (messages on their way).
SELECT r.relay, r.name, r.version, r.config_digest,
       extract(epoch FROM clock_timestamp() - r.started_at)::double precision AS up_seconds,
       extract(epoch FROM clock_timestamp() - r.beat_at)::double precision AS beat_seconds,
       extract(epoch FROM r.lease_time)::double precision AS lease_seconds,
       coalesce((SELECT sum(cardinality(l.ids)) FROM outbox.leases l WHERE l.relay = r.relay), 0)::bigint AS leased
  FROM outbox.relays r
 ORDER BY r.name, r.started_at
