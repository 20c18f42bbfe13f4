-- Settles deliveries: see functions/settle.sql.
-- $1 relay uuid, $2 relay name, $3 lane endpoint, then in step: $4 endpoint[], $5 lease[], $6 id[], $7 generation[],
-- $8 settlement[], $9 delay[], $10 reason[], $11 hold[], $12 attempt[], $13 outcome[], $14 status[], $15 error[],
-- $16 response[], $17 duration[], $18 ago[]; $19 archive boolean.
SELECT s.settled, s.history_error
  FROM outbox.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) s
