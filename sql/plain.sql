-- Before shape.sql, in its transaction: a role or a shared session can have the server print what it is asked for in other quotes.
SELECT set_config('quote_all_identifiers', 'off', true), set_config('standard_conforming_strings', 'on', true)
