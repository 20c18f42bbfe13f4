-- The relays that live or were not yet seen to be dead. Returns relay, name, version, config_digest, up_seconds,
-- beat_seconds (since the last beat), lease_seconds, leased (messages on their way), keeps_bell (it is the one that inserts wake).
SELECT r.relay, r.name, r.version, r.config_digest,
       extract(epoch FROM clock_timestamp() - r.started_at)::double precision AS up_seconds,
       extract(epoch FROM clock_timestamp() - r.beat_at)::double precision AS beat_seconds,
       extract(epoch FROM r.lease_time)::double precision AS lease_seconds,
       coalesce((SELECT sum(cardinality(l.ids)) FROM outbox.leases l WHERE l.relay = r.relay), 0)::bigint AS leased,
       EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.classid = 1870034018 AND l.objid = 2 AND l.objsubid = 2 AND l.granted
                  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                  AND l.pid = ANY (r.bell_pids)) AS keeps_bell
  FROM outbox.relays r
 ORDER BY r.name, r.started_at
