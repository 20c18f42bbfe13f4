-- Opens each of the relay's transactions. A pooler shares sessions and a role can carry settings, so all that could change
-- the meaning, the plan or the length of a statement is said here. Planner: an index serves every row that these statements
-- look for, in the order in which it is wanted; statistics taken while the table was empty, with indexes of the size of its busiest
-- hour, must not say otherwise.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL role TO DEFAULT;
SET LOCAL statement_timeout = '30s';
SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '30s';
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL timezone = 'UTC';
SET LOCAL datestyle = 'ISO';
SET LOCAL jit = off;
SET LOCAL enable_indexscan = on;
SET LOCAL enable_indexonlyscan = on;
SET LOCAL enable_nestloop = on;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_sort = off
