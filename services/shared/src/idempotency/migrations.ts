import type { Migration } from '../postgres/migrate';

/**
 * The tables of kept answers, the same in every service that makes changes for a caller. Forward only. `idempotency`
 * has an answer for each key, written in the transaction of the change; `idempotency_usage` counts them by owner (see
 * `ownerOf`). The service `data` made the first table before this module existed.
 */
export const idempotencyMigrations: readonly Migration[] = [
  {
    name: 'answers',
    text: `
create table if not exists idempotency (
  caller text collate "C" not null,
  method text not null,
  path text not null,
  key text collate "C" not null,
  content_hash bytea not null,
  -- What is needed to give the same answer: a ticket, or the answer without secrets.
  answer text not null,
  at timestamptz not null,
  primary key (caller, key, method, path)
);
create index if not exists idempotency_at on idempotency (at);
create table idempotency_usage (
  owner text collate "C" primary key,
  keys bigint not null,
  answer_bytes bigint not null
);
insert into idempotency_usage (owner, keys, answer_bytes)
  select substring(caller from '^[^/]*(?:/[^/]*)?'), count(*), sum(octet_length(answer)) from idempotency group by 1;`,
  },
];
