-- All functions that a migration makes, in one word: tells those of another release from those that somebody altered by hand, for
-- `migrate` writes the word down (outbox.meta.functions). By name, since others may have functions in this schema. The same word on
-- every supported server.
CREATE OR REPLACE FUNCTION outbox.functions_digest()
RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
SELECT md5(string_agg(concat_ws(' ', p.proname, pg_get_function_identity_arguments(p.oid), p.prosrc, p.prolang::text, p.proisstrict::text,
                                CASE WHEN p.prosecdef THEN p.proconfig::text END), chr(10)
                      ORDER BY p.proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C"))
  FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'outbox'
   AND p.proname = ANY (ARRAY[
       'abort_job', 'accept', 'advance', 'answer_step', 'arm', 'bury', 'cancel', 'cancel_saga', 'check_filter', 'check_plan',
       'claim', 'conditions', 'deregister', 'discard', 'doorbell', 'end_parked', 'ensure_partitions', 'expand', 'expire',
       'find_sagas', 'fire', 'fits', 'forget', 'functions_digest', 'hang_up', 'highest_seq', 'history', 'list',
       'maintain_partitions', 'matching', 'matching_sagas', 'move_saga', 'next_step', 'obstacles', 'parked_saga', 'pause',
       'pick_in_order', 'pick_unordered', 'reap', 'recover', 'register', 'release_key', 'replay', 'report', 'rerun_saga',
       'resume', 'resume_saga', 'revive', 'ring', 'run_job', 'send_step', 'settle', 'show', 'show_saga', 'skip_step',
       'start_job', 'start_saga', 'system_identifier', 'take_tokens', 'tend_sagas', 'thin_partitions', 'time_span',
       'turn_back', 'watch', 'why'])
$$;
