-- Whether the functions are those of the last migration, of whatever release. Prepared only where the schema exists.
SELECT m.functions IS NOT DISTINCT FROM outbox.functions_digest() AS sealed
  FROM outbox.meta m
