-- The database of token-cache and its two roles, for PostgreSQL 14 and later. Run it with psql on the primary, as a superuser or
-- as a role with CREATEROLE and CREATEDB; it may be run again, and changes nothing that is there:
--
--     psql -d postgres -f roles.sql
--     psql -d postgres -c '\password token_cache_owner' -c '\password token_cache'
--
-- Then make the tables:
--
--     token-cache migrate --url postgresql://token_cache_owner@db1,db2/tokens
--
-- Other names: psql -v database=logins -v owner=logins_owner -v server=logins -d postgres -f roles.sql

\set ON_ERROR_STOP on
\if :{?database}
\else
    \set database tokens
\endif
\if :{?owner}
\else
    \set owner token_cache_owner
\endif
\if :{?server}
\else
    \set server token_cache
\endif

-- Owns the tables. Used by `token-cache migrate` and nothing else, so its password is on no server.
SELECT format('CREATE ROLE %I LOGIN', :'owner')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'owner') \gexec

-- Used by `token-cache serve` and the other commands: reads, writes and deletes rows, and cannot change a table.
SELECT format('CREATE ROLE %I LOGIN', :'server')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'server') \gexec

SELECT format('CREATE DATABASE %I', :'database')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec

\connect :"database"

-- No other role may connect.
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"owner", :"server";

-- The tables have a schema of their own, in which only their owner can make tables.
SELECT format('CREATE SCHEMA %I', :'server')
WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = :'server') \gexec
GRANT USAGE, CREATE ON SCHEMA :"server" TO :"owner";
GRANT USAGE ON SCHEMA :"server" TO :"server";
-- The servers' role may read and change the rows of all tables that the owner makes from now on. Only a member of the owner's role
-- may grant this, so whoever runs this file becomes and stays one.
SELECT format('GRANT %I TO CURRENT_USER', :'owner') WHERE NOT pg_has_role(:'owner', 'USAGE') \gexec
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA :"server" GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO :"server";
ALTER ROLE :"owner" IN DATABASE :"database" SET search_path = :"server";
ALTER ROLE :"server" IN DATABASE :"database" SET search_path = :"server";

-- Whatever postgresql.conf says: a commit waits for the disk, and for the standby if there is a synchronous one.
ALTER ROLE :"server" IN DATABASE :"database" SET synchronous_commit = on;
