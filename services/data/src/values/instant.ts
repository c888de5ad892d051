const RFC3339 = /^(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:([Zz])|([+-])(\d{2}):(\d{2}))$/;

/**
 * The instant of RFC 3339 text with an offset, as seconds since the epoch in decimal text with up to six decimals;
 * undefined for any other text. Postgres keeps microseconds, so more than six decimals are not taken for a date.
 */
export function parseInstant(text: string): string | undefined {
  const match = RFC3339.exec(text);
  if (!match) return undefined;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [offsetHours, offsetMinutes] = [Number(match[10] ?? 0), Number(match[11] ?? 0)];
  if (hour > 23 || minute > 59 || second > 59 || offsetHours > 15 || offsetMinutes > 59 || year < 1) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  date.setUTCHours(hour, minute, second);
  // A day that the month does not have rolls over into the next.
  if (month < 1 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  const offsetS = (match[9] === '-' ? -1 : 1) * (offsetHours * 3600 + offsetMinutes * 60);
  const seconds = date.getTime() / 1000 - offsetS;
  const micros = BigInt(seconds) * 1_000_000n + BigInt((match[7] ?? '').padEnd(6, '0'));
  return microsToText(micros);
}

function microsToText(micros: bigint): string {
  const absolute = micros < 0n ? -micros : micros;
  const fraction = (absolute % 1_000_000n).toString().padStart(6, '0').replace(/0+$/, '');
  return `${micros < 0n ? '-' : ''}${absolute / 1_000_000n}${fraction === '' ? '' : `.${fraction}`}`;
}
