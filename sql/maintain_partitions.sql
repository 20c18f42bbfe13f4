-- Makes the partitions of the days to come and drops those past retention: see functions/maintain_partitions.sql.
-- $1 days ahead int, $2 keep attempts for seconds, $3 keep delivered for seconds.
SELECT p.made, p.dropped FROM outbox.maintain_partitions($1, make_interval(secs => $2), make_interval(secs => $3)) p
