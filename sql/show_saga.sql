-- The whole life of a saga: $1 id uuid. Returns a JSON object, NULL if there is none of this id. See functions/show_saga.sql.
SELECT outbox.show_saga($1)::text AS life
