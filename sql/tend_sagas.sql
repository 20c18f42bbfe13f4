-- Begins sagas that are new, and turns back those that are to go back: see functions/tend_sagas.sql.
-- $1 plans text, a JSON object of arrays of steps by name; $2 limit int.
SELECT t.begun, t.back FROM outbox.tend_sagas($1::text::jsonb, $2) t
