import { randomBytes } from 'node:crypto';
import { randomHex, randomSlice } from './random';

let lastMs = 0;
let sequence = 0;

/**
 * A time-ordered UUID (RFC 9562, version 7). Within a process the order of making is the order of the ids:
 * the 12 bits after the milliseconds count up, and borrow from the future when they overflow.
 */
export function newDocumentId(nowMs = Date.now()): string {
  if (nowMs > lastMs) {
    lastMs = nowMs;
    sequence = randomSlice(2).readUInt16BE() & 0x3ff;
  } else if (++sequence > 0xfff) {
    lastMs += 1;
    sequence = 0;
  }
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(lastMs, 0, 6);
  bytes.writeUInt16BE(0x7000 | sequence, 6);
  randomSlice(8).copy(bytes, 8);
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/**
 * The kind of a ticket: `c` for a commit, which the data service answers for; `j` for a job (an index build, a rebuild
 * of a view), which the tasks service answers for; `p` for a payment that is being settled, which the payments service
 * answers for, with the app number 0.
 */
export type TicketKind = 'c' | 'j' | 'p';

const TICKET = /^([cjp])([0-9a-z]{1,11})-([A-Za-z0-9_-]{20})$/;

/** A ticket: its kind, the number of its app in base 36, and 120 random bits, which make it a capability. */
export function newTicket(kind: TicketKind, appNumber: bigint): string {
  return `${kind}${appNumber.toString(36)}-${randomSlice(15).toString('base64url')}`;
}

/** The parts of a ticket, or undefined for text that never was one. */
export function parseTicket(text: string): { kind: TicketKind; appNumber: bigint } | undefined {
  const match = TICKET.exec(text);
  if (!match) return undefined;
  let appNumber = 0n;
  for (const digit of match[2]!) appNumber = appNumber * 36n + BigInt(parseInt(digit, 36));
  return { kind: match[1] as TicketKind, appNumber };
}

/** A secret of 256 random bits in URL-safe text. */
export function newSecret(prefix: string): string {
  return prefix + randomBytes(32).toString('base64url');
}

/** A short random id with a prefix that says what it names, 96 bits. */
export function newId(prefix: string): string {
  return prefix + randomHex(12);
}
