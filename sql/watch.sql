-- Looks for what is wrong: see functions/watch.sql. Returns state and content (text) of what is new.
-- $1 every, $2 repeat, $3 window, $4 failure ratio, $5 failure minimum int, $6 dead letters int, $7 oldest due, $8 paused, $9 no route: seconds
-- double precision where nothing else is said; $10 sagas int; $11 webhook boolean, $12 topic text.
SELECT w.state, w.content::text AS content
  FROM outbox.watch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) w
