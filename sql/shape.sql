-- What the schema is made of, so that what was altered by hand can be named. Returns object, shape: one row for each table, column,
-- constraint, index, sequence, function (and one for its settings), trigger and rule of outbox, partitions apart (they come and
-- go, and follow their parents), and for each constraint of others that refers to a table of it. Valid on any database.
--
-- Written so that every supported server says the same of the same migration, and of a dump of it that was restored, which has
-- other parentheses: runs of them and of blanks are one blank. What is tuned and changes no meaning is left out: storage parameters,
-- owners, rights, triggers that are off. Row security counts where it holds for the caller. No backslash: what one means is a setting.
SELECT o.object, o.shape
  FROM pg_catalog.pg_namespace n
 CROSS JOIN LATERAL (
        SELECT 'table ' || c.relname AS object,
               concat_ws(' ', CASE c.relkind WHEN 'p' THEN 'partitioned ' || pg_get_partkeydef(c.oid) WHEN 'r' THEN 'plain' ELSE c.relkind::text END,
                         CASE c.relpersistence WHEN 'u' THEN 'unlogged' WHEN 'p' THEN 'logged' END,
                         CASE WHEN row_security_active(c.oid) THEN 'with row security' END) AS shape
          FROM pg_catalog.pg_class c
         WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT c.relispartition
         UNION ALL
        SELECT 'column ' || c.relname || '.' || a.attname,
               concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
                         CASE WHEN NOT l.collisdeterministic THEN 'collate ' || l.collname END,
                         CASE a.attidentity WHEN 'a' THEN 'identity always' WHEN 'd' THEN 'identity by default' END,
                         CASE WHEN a.attgenerated <> '' THEN 'generated' END,
                         'default ' || pg_get_expr(d.adbin, d.adrelid))
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
          LEFT JOIN pg_catalog.pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
         WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT c.relispartition
         UNION ALL
        -- Not those that say NOT NULL: the column does.
        SELECT 'constraint ' || c.relname || ' "' || k.conname || '"',
               regexp_replace(pg_get_constraintdef(k.oid), '[()[:space:]]+', ' ', 'g')
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid AND k.contype <> 'n'
         WHERE c.relnamespace = n.oid AND NOT c.relispartition
         UNION ALL
        SELECT 'constraint ' || c.relname || ' "' || k.conname || '" of ' || k.conrelid::regclass::text,
               regexp_replace(pg_get_constraintdef(k.oid), '[()[:space:]]+', ' ', 'g')
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_constraint k ON k.confrelid = c.oid
         WHERE c.relnamespace = n.oid AND NOT c.relispartition
         UNION ALL
        SELECT 'index ' || c.relname,
               concat_ws(' ', regexp_replace(regexp_replace(pg_get_indexdef(c.oid), ' WITH [(][^)]*[)]', ''), '[()[:space:]]+', ' ', 'g'),
                         CASE WHEN NOT i.indisvalid THEN 'invalid' END)
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
         WHERE c.relnamespace = n.oid AND NOT c.relispartition
         UNION ALL
        SELECT 'sequence ' || c.relname,
               concat_ws(' ', 'increment', s.seqincrement, 'cache', s.seqcache, CASE WHEN s.seqcycle THEN 'cycle' END)
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid
         WHERE c.relnamespace = n.oid
         UNION ALL
        SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
               concat_ws(' ', md5(p.prosrc), l.lanname, pg_get_function_result(p.oid), p.provolatile::text,
                         CASE WHEN p.proisstrict THEN 'strict' END,
                         -- With its owner's rights it must find its names where it is meant to.
                         CASE WHEN p.prosecdef
                              THEN 'security definer ' || coalesce((SELECT translate(g.setting, '"', '') FROM unnest(p.proconfig) AS g (setting)
                                                                     WHERE g.setting LIKE 'search_path=%'), '') END)
          FROM pg_catalog.pg_proc p
          JOIN pg_catalog.pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = n.oid
         UNION ALL
        SELECT 'settings of ' || p.proname,
               -- Names in it have the quotes that whoever made it liked.
               string_agg(translate(g.setting, '"', ''), ', ' ORDER BY g.setting COLLATE "C")
          FROM pg_catalog.pg_proc p
         CROSS JOIN LATERAL unnest(p.proconfig) AS g (setting)
         WHERE p.pronamespace = n.oid
         GROUP BY p.oid, p.proname
         UNION ALL
        SELECT 'trigger ' || c.relname || '.' || t.tgname,
               regexp_replace(pg_get_triggerdef(t.oid), '[()[:space:]]+', ' ', 'g')
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
         WHERE c.relnamespace = n.oid AND NOT c.relispartition
         UNION ALL
        SELECT 'rule ' || c.relname || '.' || r.rulename, 'rule'
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
         WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT c.relispartition
       ) o
 WHERE n.nspname = 'outbox'
 ORDER BY o.object COLLATE "C"
