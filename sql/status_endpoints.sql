-- The endpoints that any relay ever had. Returns endpoint, paused_seconds, paused_by, pause_reason (NULL while it runs),
-- closed_for (seconds until it may be asked again, NULL if it may), breaker (closed, open, half_open), open_for (seconds
-- until it lets probes through), leased (messages on their way); and of the last pause or resume: change (paused, resumed; NULL: there was
-- none), changed_seconds, changed_by, change_reason.
SELECT e.endpoint, extract(epoch FROM clock_timestamp() - e.paused_at)::double precision AS paused_seconds,
       e.paused_by, e.pause_reason,
       CASE WHEN e.not_before > clock_timestamp()
            THEN (extract(epoch FROM e.not_before) - extract(epoch FROM clock_timestamp()))::double precision END AS closed_for,
       e.breaker, CASE WHEN e.breaker = 'open' THEN extract(epoch FROM e.breaker_until - clock_timestamp())::double precision END AS open_for,
       coalesce((SELECT sum(cardinality(l.ids)) FROM outbox.leases l WHERE l.endpoint = e.endpoint), 0)::bigint AS leased,
       e.change, extract(epoch FROM clock_timestamp() - e.changed_at)::double precision AS changed_seconds, e.changed_by, e.change_reason
  FROM outbox.endpoints e
 ORDER BY e.endpoint
