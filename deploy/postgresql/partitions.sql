-- Divides the table of tokens into 64 parts by the hash of their keys: PostgreSQL then vacuums it, and builds its index anew, in pieces,
-- several at a time. A statement that reads one token then costs 12 microseconds more, as PostgreSQL locks all parts for it (measured
-- with 15, for 16 and for 64 parts); one that writes hardly more. So it is worth it only where vacuuming has become a burden, such as
-- with a billion tokens. Run it with psql as the tables' owner, after `token-cache migrate`:
--
--     psql -U token_cache_owner -d tokens -f partitions.sql
--
-- Servers may run meanwhile: a trigger repeats their writes in the new table, which takes the place of the old one at the end. The disk
-- must have room for a second table. If it stops, as when a backup has locked the table for longer than two seconds, run it again, with
-- the same number of parts; it begins with the first page, and passes quickly over what is copied. To give it up:
--
--     psql -U token_cache_owner -1 -d tokens -c "SET LOCAL lock_timeout = '2s'" -c 'DROP FUNCTION divide_token CASCADE' -c 'DROP TABLE token_divided'
--
-- Another number of parts: psql -U token_cache_owner -v parts=16 -d tokens -f partitions.sql

\set ON_ERROR_STOP on
\if :{?parts}
\else
    \set parts 64
\endif
-- The new table needs the same owner.
SELECT format('SET ROLE %I', pg_get_userbyid(relowner)) FROM pg_class WHERE oid = 'token'::regclass \gexec
SELECT relkind = 'p' AS is_divided FROM pg_class WHERE oid = 'token'::regclass \gset
\if :is_divided
    \echo The table of tokens is divided already.
    DROP TABLE IF EXISTS token_undivided;
    \quit
\endif
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'token'::regclass AND tgname = 'check_new_key') THEN
        RAISE 'the tables are not up to date: run token-cache migrate first';
    END IF;
    -- A publication that names the table would lose it, and one of all tables would publish its parts instead.
    IF EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = 'token'::regclass) OR EXISTS (
        SELECT FROM pg_publication_tables AS published JOIN pg_publication USING (pubname)
        JOIN pg_class ON relname = tablename JOIN pg_namespace ON pg_namespace.oid = relnamespace AND nspname = schemaname
        WHERE pg_class.oid = 'token'::regclass AND NOT pubviaroot
    ) THEN
        RAISE 'a publication has the table token: take it out (ALTER PUBLICATION ... DROP TABLE) and add it again afterwards, or if it is one of all tables, SET (publish_via_partition_root = true)';
    END IF;
END $$;

-- The parts and their indexes lie where the table does.
SELECT format('SET default_tablespace = %I', spcname)
FROM pg_class JOIN pg_tablespace ON pg_tablespace.oid = reltablespace WHERE pg_class.oid = 'token'::regclass \gexec

-- Servers' statements would wait behind a longer one.
SET lock_timeout = '2s';

BEGIN;
-- Without the trigger, an earlier attempt's table has missed writes.
SELECT 'DROP TABLE IF EXISTS token_divided'
WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'token'::regclass AND tgname = 'divide') \gexec
CREATE TABLE IF NOT EXISTS token_divided (LIKE token INCLUDING DEFAULTS INCLUDING STORAGE, PRIMARY KEY (key)) PARTITION BY HASH (key);
SELECT format('CREATE TABLE IF NOT EXISTS token_%s PARTITION OF token_divided FOR VALUES WITH (MODULUS %s, REMAINDER %s) %s', part, :parts,
    part, 'WITH (' || nullif(array_to_string(reloptions, ', '), '') || ')')
FROM pg_class, generate_series(0, :parts - 1) AS part WHERE oid = 'token'::regclass \gexec
SELECT format('GRANT %s ON token_divided TO %s', privilege_type, coalesce(quote_ident(rolname), 'PUBLIC'))
FROM pg_class CROSS JOIN aclexplode(relacl) LEFT JOIN pg_roles ON pg_roles.oid = grantee
WHERE pg_class.oid = 'token'::regclass AND grantee <> relowner \gexec
SELECT regexp_replace(pg_get_triggerdef(oid), ' ON \S+ ', ' ON token_divided ')
FROM pg_trigger AS own WHERE tgrelid = 'token'::regclass AND NOT tgisinternal AND tgname <> 'divide'
AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'token_divided'::regclass AND tgname = own.tgname) \gexec
CREATE OR REPLACE FUNCTION divide_token() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM token_divided WHERE key = OLD.key;
    ELSE
        INSERT INTO token_divided (key, version, written_at, expires_at, key_number, value)
        VALUES (NEW.key, NEW.version, NEW.written_at, NEW.expires_at, NEW.key_number, NEW.value)
        ON CONFLICT (key) DO UPDATE SET version = excluded.version, written_at = excluded.written_at,
            expires_at = excluded.expires_at, key_number = excluded.key_number, value = excluded.value;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER divide AFTER INSERT OR UPDATE OR DELETE ON token FOR EACH ROW EXECUTE FUNCTION divide_token();
COMMIT;

-- Copies what was there before, 64 pages at a time. The lock keeps the walk over all rows from taking a step meanwhile: nobody else
-- deletes rows, and a row that was deleted would come back. A row that is in the new table is there as the trigger has written it.
-- No step need wait for standbys, as the last commit does so for all.
SET synchronous_commit = off;
DO $$
DECLARE
    page bigint := 0;
    pages bigint := pg_relation_size('token') / current_setting('block_size')::bigint;
BEGIN
    WHILE page < pages LOOP
        PERFORM FROM store FOR UPDATE;
        INSERT INTO token_divided (key, version, written_at, expires_at, key_number, value)
        SELECT key, version, written_at, expires_at, key_number, value FROM token
        WHERE ctid >= format('(%s,0)', page)::tid AND ctid < format('(%s,0)', page + 64)::tid
        ON CONFLICT (key) DO NOTHING;
        COMMIT;
        page := page + 64;
        IF page % 65536 = 0 THEN RAISE NOTICE '% of % pages are copied', page, pages; END IF;
    END LOOP;
END $$;
RESET synchronous_commit;
ANALYZE token_divided;

BEGIN;
-- In the walk's order. Its place is a page of the old table: the round that is under way visits all tokens of the new one.
SELECT FROM store FOR UPDATE;
LOCK TABLE token;
UPDATE store SET walk = (nullif(walk, '')::jsonb - 'place' || '{"areSessions": false}')::text;
DROP TRIGGER divide ON token;
DROP FUNCTION divide_token;
ALTER TABLE token RENAME TO token_undivided;
ALTER INDEX token_pkey RENAME TO token_undivided_pkey;
ALTER TABLE token_divided RENAME TO token;
ALTER INDEX token_divided_pkey RENAME TO token_pkey;
COMMIT;

DROP TABLE token_undivided;
