-- Takes due rows of one lane under a new lease: see functions/claim.sql.
-- $1 relay uuid, $2 session int, $3 epoch uuid, $4 topic, $5 lane endpoint, $6 endpoint, $7 in order, $8 limit int,
-- $9 bytes bigint, $10 chain int, $11 ready floor bigint, $12 waiting floor timestamptz and $13 seq, $14 lease floor bigint, $15 open keys.
SELECT c.state, c.lease, c.ids, c.ready_floor, c.waiting_floor, c.waiting_seq, c.lease_floor, c.dry, c.next_due_in
  FROM outbox.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) c
