import { execute, row, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/**
 * `signed`: stored, perhaps sent; `broadcast`: a node has answered; `held`: what the chain says fits nothing, and a
 * person decides; `confirmed` and `failed`: in a block; `expired`: no block can include it.
 */
export type OutgoingState = 'signed' | 'broadcast' | 'held' | 'confirmed' | 'failed' | 'expired';

/** A transaction that was signed here. */
export interface OutgoingTransaction {
  number: bigint;
  sender: string;
  sequence: bigint;
  hash: string;
  bytes: Buffer;
  /** The last block that may include it. */
  timeoutHeight: bigint;
  /** The fee in utia. */
  fee: bigint;
  state: OutgoingState;
  /** The height beyond the timeout at which a node did not find it first. */
  absentHeight: bigint | null;
  createdAt: Date;
}

const columns = sql`number, sender, sequence, hash, bytes, timeout_height as "timeoutHeight", fee, state,
  absent_height as "absentHeight", created_at as "createdAt"`;

/** The transaction of a sender that is in flight; there is one at most. */
export function findOpen(db: Queryable, sender: string): Promise<OutgoingTransaction | undefined> {
  return row<OutgoingTransaction>(
    db,
    sql`select ${columns} from outgoing_transaction where sender = ${sender} and state in ('signed', 'broadcast', 'held')`,
  );
}

/** Locks a transaction that is in flight; undefined when another process has ended it. */
export function lockOpen(tx: Connection, number: bigint): Promise<OutgoingTransaction | undefined> {
  return row<OutgoingTransaction>(
    tx,
    sql`select ${columns} from outgoing_transaction
        where number = ${number} and state in ('signed', 'broadcast', 'held') for no key update`,
  );
}

/** The state of a sender, whose row stays locked until the database transaction ends. */
export interface Sender {
  nextSequence: bigint;
  stoppedBecause: string | null;
}

/**
 * Locks a sender; one that signs for the first time, or was resumed, starts with the sequence that the chain expects.
 */
export async function lockSender(tx: Connection, address: string, sequence: bigint): Promise<Sender> {
  await execute(
    tx,
    sql`insert into chain_sender (address, next_sequence) values (${address}, ${sequence}) on conflict do nothing`,
  );
  const sender = await row<Sender>(
    tx,
    sql`select coalesce(next_sequence, ${sequence}) as "nextSequence", stopped_because as "stoppedBecause"
        from chain_sender where address = ${address} for no key update`,
  );
  return sender!;
}

/** Nothing more is signed for a sender until a person resumes it. */
export async function stopSender(tx: Connection, address: string, reason: string): Promise<void> {
  await execute(tx, sql`update chain_sender set stopped_because = ${reason} where address = ${address}`);
}

/** Stores a signed transaction, before it is sent. */
export async function insertSigned(
  tx: Connection,
  signed: Pick<OutgoingTransaction, 'sender' | 'sequence' | 'hash' | 'timeoutHeight' | 'fee'> & {
    bytes: Uint8Array;
    /** The height of the chain when it was signed: no block up to this one includes the transaction. */
    signedHeight: bigint;
  },
): Promise<bigint> {
  const inserted = await row<{ number: bigint }>(
    tx,
    sql`insert into outgoing_transaction (sender, sequence, hash, bytes, signed_height, timeout_height, fee, state)
        values (${signed.sender}, ${signed.sequence}, ${signed.hash}, ${Buffer.from(signed.bytes)},
                ${signed.signedHeight}, ${signed.timeoutHeight}, ${signed.fee}, 'signed')
        returning number`,
  );
  return inserted!.number;
}

/** A change of a transaction that is in flight. */
export type OutgoingChange =
  | { state: 'broadcast' | 'expired' }
  | { state: 'held'; error: string }
  | { state: 'confirmed' | 'failed'; height: bigint; code: number }
  | { absentHeight: bigint };

/** One statement, so that a row is complete at any time. */
export async function updateOutgoing(tx: Connection, number: bigint, change: OutgoingChange): Promise<void> {
  const patch = { state: null, error: null, height: null, code: null, absentHeight: null, ...change };
  await execute(
    tx,
    sql`update outgoing_transaction set state = coalesce(${patch.state}, state), error = coalesce(${patch.error}, error),
          height = coalesce(${patch.height}::bigint, height), code = coalesce(${patch.code}::int, code),
          absent_height = coalesce(${patch.absentHeight}::bigint, absent_height), updated_at = clock_timestamp()
        where number = ${number}`,
  );
}
