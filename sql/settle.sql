-- Settles deliveries: see functions/settle.sql.
-- $1 relay uuid, $2 relay name, $3 lane endpoint, then in step: $4 endpoint[], $5 lease[], $6 id[], $7 seq[], $8 generation[],
-- $9 settlement[], $10 delay[], $11 reason[], $12 hold[], $13 attempt[], $14 outcome[], $15 status[], $16 error[],
-- $17 response[], $18 duration[], $19 ago[]; $20 archive boolean, $21 history text; $22 request[], $23 response headers[], $24 output[], $25 poll[].
SELECT s.settled, s.history_error, s.topics, s.endpoints
  FROM outbox.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25) s
