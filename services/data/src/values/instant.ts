/**
 * Instants: RFC 3339 with an offset and any number of decimals, or a day (`2024-01-01`), which is its first instant in
 * UTC. Six decimals count, as in Postgres; second 60 is no instant. `instant_of()` in the migrations reads the same
 * texts in SQL.
 */

const ZERO = 0x30;
/** Bytes of `2024-01-01`, which every instant begins with. */
const dayEnd = 10;
/** Bytes of `2024-01-01T00:00:00`, which every instant with a time begins with. */
const secondsEnd = 19;
/** Decimals of a second that count. */
const decimalsMax = 6;
const daysOfMonth = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** The number that `count` digits make; NaN where one of them is no digit. */
function digitsAt(bytes: Buffer, position: number, count: number): number {
  let value = 0;
  for (let i = position; i < position + count; i += 1) {
    const digit = (bytes[i] ?? 0) - ZERO;
    value = digit >= 0 && digit <= 9 ? value * 10 + digit : NaN;
  }
  return value;
}

const isLeap = (year: number): boolean => year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);

/** Days from 1970-01-01 to a day of the proleptic Gregorian calendar; NaN for a day that there is not. */
function epochDay(year: number, month: number, day: number): number {
  if (!(year >= 1 && month >= 1 && month <= 12 && day >= 1)) return NaN;
  if (day > daysOfMonth[month - 1]! + (month === 2 && isLeap(year) ? 1 : 0)) return NaN;
  // Years that begin in March: the leap day is the last of its year.
  const shifted = month > 2 ? year : year - 1;
  const ofYear = Math.floor((153 * (month > 2 ? month - 3 : month + 9) + 2) / 5) + day - 1;
  const leapDays = Math.floor(shifted / 4) - Math.floor(shifted / 100) + Math.floor(shifted / 400);
  return shifted * 365 + leapDays + ofYear - 719_468;
}

/** The end of the fraction of an instant; where it has none, the end of its seconds. */
function fractionEnd(bytes: Buffer, start: number, end: number): number {
  let position = start + secondsEnd;
  if (bytes[position] !== 0x2e) return position;
  do position += 1;
  while (position < end && bytes[position]! >= ZERO && bytes[position]! <= 0x39);
  return position;
}

/** Seconds east of UTC that the offset of an instant says; NaN for any other text. */
function offsetSeconds(bytes: Buffer, position: number, end: number): number {
  const sign = bytes[position];
  if (end - position === 1) return sign === 0x5a || sign === 0x7a ? 0 : NaN;
  if (end - position !== 6 || (sign !== 0x2b && sign !== 0x2d) || bytes[position + 3] !== 0x3a) return NaN;
  const [hours, minutes] = [digitsAt(bytes, position + 1, 2), digitsAt(bytes, position + 4, 2)];
  if (!(hours <= 23 && minutes <= 59)) return NaN;
  return (sign === 0x2d ? -1 : 1) * (hours * 3600 + minutes * 60);
}

/**
 * The whole seconds since the epoch of an instant or a day that stands from `start` up to, without it, `end`; NaN for
 * any other text.
 */
export function instantSeconds(bytes: Buffer, start: number, end: number): number {
  if (end - start < dayEnd || bytes[start + 4] !== 0x2d || bytes[start + 7] !== 0x2d) return NaN;
  const day = epochDay(digitsAt(bytes, start, 4), digitsAt(bytes, start + 5, 2), digitsAt(bytes, start + 8, 2));
  if (end - start === dayEnd) return day * 86_400;
  const separator = bytes[start + dayEnd];
  if (separator !== 0x54 && separator !== 0x74 && separator !== 0x20) return NaN;
  if (end - start <= secondsEnd || bytes[start + 13] !== 0x3a || bytes[start + 16] !== 0x3a) return NaN;
  const [hour, minute] = [digitsAt(bytes, start + 11, 2), digitsAt(bytes, start + 14, 2)];
  const second = digitsAt(bytes, start + 17, 2);
  if (!(hour <= 23 && minute <= 59 && second <= 59)) return NaN;
  const decimalsEnd = fractionEnd(bytes, start, end);
  // A point without decimals.
  if (decimalsEnd === start + secondsEnd + 1) return NaN;
  return day * 86_400 + hour * 3600 + minute * 60 + second - offsetSeconds(bytes, decimalsEnd, end);
}

/** The microseconds of an instant after its whole seconds. */
export function instantMicros(bytes: Buffer, start: number, end: number): number {
  const from = start + secondsEnd + 1;
  if (from >= end) return 0;
  const count = Math.min(Math.max(0, fractionEnd(bytes, start, end) - from), decimalsMax);
  return count === 0 ? 0 : digitsAt(bytes, from, count) * 10 ** (decimalsMax - count);
}

/**
 * The instant of a text, or the first one of a day, as seconds since the epoch in decimal text with up to six decimals;
 * undefined for any other text.
 */
export function parseInstant(text: string): string | undefined {
  const bytes = Buffer.from(text);
  const seconds = instantSeconds(bytes, 0, bytes.length);
  if (Number.isNaN(seconds)) return undefined;
  return microsToText(BigInt(seconds) * 1_000_000n + BigInt(instantMicros(bytes, 0, bytes.length)));
}

/** Whether a text is a day (`2024-01-01`). */
export const isDay = (text: string): boolean => text.length === dayEnd && parseInstant(text) !== undefined;

/** Whether a text is an instant with a time and an offset. */
export const isTimed = (text: string): boolean => text.length !== dayEnd && parseInstant(text) !== undefined;

function microsToText(micros: bigint): string {
  const absolute = micros < 0n ? -micros : micros;
  const fraction = (absolute % 1_000_000n).toString().padStart(6, '0').replace(/0+$/, '');
  return `${micros < 0n ? '-' : ''}${absolute / 1_000_000n}${fraction === '' ? '' : `.${fraction}`}`;
}
