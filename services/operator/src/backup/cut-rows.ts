import type { Client } from 'pg';

const pageRows = 1_000;

/** An app that is not deleted, with the head of its hash chain. */
export interface AppHead {
  appId: string;
  /** Decimal; part of the name of the app's schema. */
  number: string;
  /** Decimal. */
  height: string;
  /** Hex. */
  hash: string;
}

/** An object used by blobs. */
export interface ObjectRow {
  key: string;
  appId: string;
  /** Hex. */
  sha256: string;
  sizeBytes: number;
  /** False: its upload was not committed, so it may have no bytes. */
  isStored: boolean;
}

/** The apps in the database of data, by number. */
export async function* appHeads(data: Client): AsyncGenerator<AppHead> {
  for (let last = '0'; ;) {
    const { rows } = await data.query<AppHead>(
      `select a.app_id as "appId", a.number::text, h.height::text, encode(h.hash, 'hex') as hash
       from application a join head h on h.app_number = a.number
       where a.number > $1 and a.deleted_at is null order by a.number limit ${pageRows}`,
      [last],
    );
    yield* rows;
    if (rows.length < pageRows) return;
    last = rows.at(-1)!.number;
  }
}

/** The objects used by blobs that are not deleted, by key. */
export async function* usedObjects(blobs: Client): AsyncGenerator<ObjectRow> {
  for (let last = ''; ;) {
    const { rows } = await blobs.query<Omit<ObjectRow, 'sizeBytes'> & { sizeBytes: string }>(
      `select o.object_key as key, o.app_id as "appId", o.sha256, o.size_bytes::text as "sizeBytes", used.is_stored as "isStored"
       from object o cross join lateral (
         select bool_or(state = 'stored') as is_stored from blob where blob.object_key = o.object_key and state <> 'deleted') used
       where o.object_key > $1 and used.is_stored is not null order by o.object_key limit ${pageRows}`,
      [last],
    );
    for (const row of rows) yield { ...row, sizeBytes: Number(row.sizeBytes) };
    if (rows.length < pageRows) return;
    last = rows.at(-1)!.key;
  }
}
