-- Takes due rows of one lane under a new lease: see functions/claim.sql.
-- $1 relay uuid, $2 session int, $3 epoch uuid, $4 topic, $5 lane endpoint, $6 endpoint, $7 in order, $8 hold, $9 limit int,
-- $10 bytes bigint, $11 chain int, $12 ready floor bigint, $13 waiting floor timestamptz and $14 its seq, $15 lease floor
-- bigint, $16 open keys, $17 max in flight int, $18 probes int, $19 ramp seconds, $20 ramp to int, $21 endpoint floor bigint.
SELECT c.state, c.lease, c.ids, c.ready_floor, c.waiting_floor, c.waiting_seq, c.lease_floor, c.dry, c.next_due_in,
       c.left_keys, c.others, c.breaker, c.endpoint_floor
  FROM outbox.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) c
