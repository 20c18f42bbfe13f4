-- The jobs that no one but relays sees through, the oldest first: job bigint, and wait: seconds until its rate lets it go on.
SELECT j.job, greatest(extract(epoch FROM j.next_at - clock_timestamp()), 0)::double precision AS wait
  FROM outbox.jobs j
 WHERE j.state = 'running' AND j.unattended
 ORDER BY j.job
 LIMIT 100
