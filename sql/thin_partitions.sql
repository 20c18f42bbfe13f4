-- Drops the successes of a day of attempts that is past their retention: see functions/thin_partitions.sql.
-- $1 keep them for seconds.
SELECT p.thinned FROM outbox.thin_partitions(make_interval(secs => $1)) p
