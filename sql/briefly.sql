-- Before a statement that is asked for out of curiosity: it may take a second, and no more.
SELECT set_config('statement_timeout', '1000', true)
