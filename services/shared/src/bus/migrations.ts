import { leaseTable } from '../postgres/lease';
import type { Migration } from '../postgres/migrate';

/**
 * The tables of events, the same in every service that publishes or consumes; in this module, so that no service needs
 * a copy. Forward only, like all migrations: a change is another entry.
 *
 * Publishing: `outbox` has the appended events, `outbox_epoch` the clusters that it has been in, `outbox_reader` the
 * position of each consumer. Consuming: `bus_cursor` is the cursor of a consumer in its source, `inbox` has the events
 * that it has processed, `bus_aggregate` the last sequence number of each aggregate, and `dead_letter` the events that
 * could not be applied, with later ones of the same key. A key is parked while it has a row there. With Kafka:
 * `bus_offset` is the offset of a consumer in each partition. `bus_lease` has the leases of what one copy of a service
 * does at a time, such as the relay (see postgres/lease.ts).
 */
export const busMigrations: readonly Migration[] = [
  {
    name: 'tables',
    text: `
create table outbox (
  pos bigint generated always as identity,
  xid xid8 not null default pg_current_xact_id(),
  id uuid not null default uuidv7(),
  topic text collate "C" not null,
  key text collate "C" not null,
  agg_id text collate "C" not null,
  agg_seq bigint not null check (agg_seq > 0),
  type text not null,
  payload text not null,
  at timestamptz not null default clock_timestamp(),
  primary key (xid, pos)
);
create unique index outbox_aggregate on outbox (topic, agg_id, agg_seq);

create table outbox_epoch (
  epoch bigint primary key,
  cluster text not null,
  since timestamptz not null default now()
);

create table outbox_reader (
  consumer text collate "C" primary key,
  epoch bigint not null,
  xid xid8 not null,
  pos bigint not null,
  read_at timestamptz not null default now()
);

create table bus_cursor (
  consumer text collate "C" primary key,
  epoch bigint not null default 0,
  xid xid8 not null default '0',
  pos bigint not null default 0,
  moved_at timestamptz not null default now()
);

create table inbox (
  consumer text collate "C" not null,
  event_id uuid not null,
  primary key (consumer, event_id)
);

create table bus_aggregate (
  consumer text collate "C" not null,
  topic text collate "C" not null,
  agg_id text collate "C" not null,
  last_seq bigint not null,
  primary key (consumer, topic, agg_id)
);

create table dead_letter (
  number bigint generated always as identity primary key,
  consumer text collate "C" not null,
  event_id uuid not null,
  topic text not null,
  key text collate "C" not null,
  agg_id text not null,
  agg_seq bigint not null,
  type text not null,
  payload text not null,
  at timestamptz not null,
  -- Why it could not be applied; null for one that is parked behind another.
  error text,
  attempts int not null default 0,
  created_at timestamptz not null default now(),
  unique (consumer, event_id)
);
create index dead_letter_key on dead_letter (consumer, key, number);
`,
  },
  {
    name: 'kafka',
    text: `
create table bus_offset (
  consumer text collate "C" not null,
  topic text collate "C" not null,
  partition int not null,
  next bigint not null,
  moved_at timestamptz not null default now(),
  primary key (consumer, topic, partition)
);

${leaseTable}

alter table dead_letter add column replay_asked boolean not null default false;
create index dead_letter_replay on dead_letter (consumer, key) where replay_asked;
`,
  },
  {
    name: 'trace',
    text: `
-- Of an event whose publication was traced, its traceparent.
alter table outbox add column trace text;
`,
  },
  {
    name: 'refused',
    text: `
-- What came as an event and was not signed by its publisher. Nothing waits behind it; it is here to be looked at.
create table refused_event (
  number bigint generated always as identity primary key,
  consumer text collate "C" not null,
  -- Where it was: topic/partition/offset, or the position in the outbox.
  source text collate "C" not null,
  why text not null,
  -- JSON of what it says of itself, cut at 4 KiB like the payload.
  about text not null,
  payload bytea not null,
  created_at timestamptz not null default now(),
  unique (consumer, source)
);
`,
  },
];
