-- A query whose source is private is private too, unless an administrator said explicitly that it is public.
alter table query add column shows_private boolean not null default false;
