-- The whole life of a message: $1 id uuid. Returns a JSON object, NULL if nothing of it is known. See functions/show.sql.
SELECT outbox.show($1)::text AS life
