-- What a server is: asked once for each new connection where the URL leaves a choice.
-- Returns standby, and read_only: whether a transaction that doesn't say otherwise can't write.
SELECT pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.current_setting('transaction_read_only')::boolean AS read_only
