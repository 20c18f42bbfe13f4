-- Dead letters by endpoint and reason, of the newest $1 int. Returns endpoint, reason, count, newest_seconds (age).
SELECT d.endpoint, d.reason, count(*) AS count,
       extract(epoch FROM clock_timestamp() - max(d.died_at))::double precision AS newest_seconds
  FROM (SELECT d.endpoint, d.reason, d.died_at FROM outbox.dead_letters d ORDER BY d.died_at DESC LIMIT $1::integer) d
 GROUP BY d.endpoint, d.reason
 ORDER BY d.endpoint, d.reason
