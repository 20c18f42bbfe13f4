-- Takes tokens of an endpoint's rate limit: $1 endpoint, $2 rate per second, $3 burst, $4 wanted int, $5 brought back int.
SELECT t.taken, t.next_in FROM outbox.take_tokens($1, $2, $3, $4, $5) t
