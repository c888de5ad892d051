import type { Random } from './random';

/** How a text is written: as most clients do, with spaces, over lines, or with more escapes than are needed. */
interface Spelling {
  /** Before and after a colon, and after a comma and a bracket. */
  colon: string;
  gap: string;
  string: (text: string) => string;
}

/**
 * Writes documents as clients may: the same values with other whitespace, escapes and numbers. The id comes first,
 * without escapes.
 */
export function jsonSpelling(random: Random): (document: Record<string, unknown>) => string {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const escaped = (text: string): string => {
    const unit = (at: number) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`;
    const units = [...text.split('').keys()].map((at) =>
      random(3) === 0 ? unit(at) : JSON.stringify(text[at]).slice(1, -1),
    );
    return `"${/[\ud800-\udfff]/.test(text) ? JSON.stringify(text).slice(1, -1) : units.join('')}"`;
  };
  const spellings: readonly Spelling[] = [
    { colon: ':', gap: '', string: JSON.stringify },
    { colon: ':', gap: '', string: JSON.stringify },
    { colon: ': ', gap: ' ', string: (text) => JSON.stringify(text).replaceAll('/', '\\/') },
    { colon: '\t:\r\n', gap: '\n  ', string: JSON.stringify },
    { colon: ':', gap: '', string: escaped },
  ];
  const numberText = (value: number): string => {
    const text = JSON.stringify(value);
    if (value === 1) return pick(['1', '1.0', '1e0', '10E-1']);
    if (value === 100) return pick(['100', '1e2', '100.00', '1.0E+2']);
    return /^-?\d+$/.test(text) && random(4) === 0 ? `${text}.0` : text;
  };
  const write = (value: unknown, spelling: Spelling): string => {
    const { colon, gap, string } = spelling;
    if (typeof value === 'string') return string(value);
    if (typeof value === 'number') return numberText(value);
    if (Array.isArray(value)) return `[${gap}${value.map((one) => write(one, spelling)).join(`,${gap}`)}${gap}]`;
    if (typeof value !== 'object' || value === null) return JSON.stringify(value);
    const members = Object.entries(value).map(([key, member]) => string(key) + colon + write(member, spelling));
    return `{${gap}${members.join(`,${gap}`)}${gap}}`;
  };
  return ({ id, ...members }) => {
    const [spelling, rest] = [pick(spellings), Object.keys(members).length > 0];
    const text = write(members, spelling);
    return `{"id":${JSON.stringify(id)}${rest ? ',' : ''}${text.slice(1)}`;
  };
}
