-- Databases and roles of Granary, for Postgres 18. Run it with psql 14 or newer, as a superuser or as a role with CREATEDB and
-- CREATEROLE; as often as you like: it creates what is missing and sets the passwords that are given.
--
--   DATA_PASSWORD=… DATA_OWNER_PASSWORD=… BLOBS_PASSWORD=… … psql -X -f deploy/postgres.sql "$SUPERUSER_URL"
--
-- Each service has a database granary_<service>, owned by granary_<service>_owner. The owner migrates it: it runs the command
-- `migrate` with SERVICE_ROLE=granary_<service>, which gives the role of the service its rights on the tables. The service
-- itself connects as granary_<service>, which can neither create nor change tables; only that of data creates schemas, for
-- applications. `-v prefix=name` replaces granary. A password may be given as its SCRAM verifier (SCRAM-SHA-256$…); a role
-- without one cannot log in by password.

\set ON_ERROR_STOP on
\set QUIET on
set client_min_messages = warning;
\if :{?prefix}
\else
  \set prefix granary
\endif

\set data ''
\set data_owner ''
\set blobs ''
\set blobs_owner ''
\set finance ''
\set finance_owner ''
\set payments ''
\set payments_owner ''
\set tasks ''
\set tasks_owner ''
\getenv data DATA_PASSWORD
\getenv data_owner DATA_OWNER_PASSWORD
\getenv blobs BLOBS_PASSWORD
\getenv blobs_owner BLOBS_OWNER_PASSWORD
\getenv finance FINANCE_PASSWORD
\getenv finance_owner FINANCE_OWNER_PASSWORD
\getenv payments PAYMENTS_PASSWORD
\getenv payments_owner PAYMENTS_OWNER_PASSWORD
\getenv tasks TASKS_PASSWORD
\getenv tasks_owner TASKS_OWNER_PASSWORD

begin;
create temporary table granary_service on commit preserve rows as
  select :'prefix' || '_' || service as role, :'prefix' || '_' || service || '_owner' as owner, service, password, owner_password
  from (values
    ('data', :'data', :'data_owner'),
    ('blobs', :'blobs', :'blobs_owner'),
    ('finance', :'finance', :'finance_owner'),
    ('payments', :'payments', :'payments_owner'),
    ('tasks', :'tasks', :'tasks_owner')
  ) as given (service, password, owner_password);

select format('create role %I login nosuperuser nocreatedb nocreaterole', name)
from (select role from granary_service union all select owner from granary_service) as wanted (name)
where not exists (select from pg_roles where rolname = name)
\gexec

select format('alter role %I password %L', name, given)
from (select role, password from granary_service union all select owner, owner_password from granary_service) as wanted (name, given)
where given <> ''
\gexec

-- The owner alters what the service's role owns: tables from before this script, and, in data, those of applications.
select format('grant %I to %I', role, owner) from granary_service
\gexec

-- Without superuser, a database is only given to a role whose member one is.
select format('grant %I to current_user', owner) from granary_service
where not pg_has_role(current_user, owner, 'set')
\gexec
commit;

select format('create database %I owner %I template template0 encoding ''UTF8'' locale_provider builtin builtin_locale ''C.UTF-8''', role, owner)
from granary_service where not exists (select from pg_database where datname = role)
\gexec

begin;
select format('alter database %I owner to %I', role, owner)
from granary_service join pg_database on datname = role where datdba <> owner::regrole
\gexec

select format('revoke all on database %I from public', role) from granary_service
\gexec

-- The disk is probed by a temporary table.
select format('grant connect, temporary on database %I to %I', role, role) from granary_service
union all
select format('grant create on database %I to %I', role, role) from granary_service where service = 'data'
\gexec
commit;
drop table granary_service;
