-- What is wrong, the longest first. Returns one JSON object for each; looked_seconds = how long ago somebody looked last.
SELECT json_build_object(
           'kind', a.kind, 'subject', a.subject, 'since', a.firing_since, 'summary', a.summary, 'command', a.command,
           'details', a.details, 'seconds', extract(epoch FROM clock_timestamp() - a.firing_since)::double precision,
           'looked_seconds', extract(epoch FROM clock_timestamp() - w.watched_at)::double precision)::text AS row
  FROM outbox.alerts a
  LEFT JOIN outbox.watching w ON true
 ORDER BY a.firing_since, a.kind, a.subject
