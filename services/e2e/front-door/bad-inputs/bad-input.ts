import type { OutgoingHttpHeaders } from 'node:http';

export interface BadInput {
  what: string;
  method: string;
  path: string;
  headers: OutgoingHttpHeaders;
  body: Buffer | string | undefined;
  status: number;
  code: string;
  /** A text that the answer must contain, such as the exceeded limit. */
  says: string | undefined;
}

/** The app of all cases; prepareShop creates its contents. */
export const shop = 'shop';
/** Placeholders for values that are known only once the app exists. */
export const placeholder = { key: '{key}', operatorKey: '{operator}', blobId: '{blob}' };

export type Body = Buffer | string | object | undefined;
export interface More {
  headers?: OutgoingHttpHeaders;
  says?: string;
}

export function bad(what: string, target: string, body: Body, status: number, code: string, more: More = {}): BadInput {
  const space = target.indexOf(' ');
  const isText = body === undefined || typeof body === 'string' || Buffer.isBuffer(body);
  return {
    what: `${target.slice(0, 90)}: ${what}`,
    method: target.slice(0, space),
    path: target.slice(space + 1),
    headers: {
      'X-App-Key': placeholder.key,
      'X-Operator-Key': placeholder.operatorKey,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...more.headers,
    },
    body: isText ? body : JSON.stringify(body),
    status,
    code,
    says: more.says,
  };
}

export const app = `/api/apps/${shop}`;
export const root = `${shop}::films`;
export const bytes = (...parts: Array<string | number[]>) =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))));

/** One case for each invalid value of a field; the other fields are valid. */
export function wrong(
  target: string,
  good: object,
  values: Record<string, unknown[]>,
  code = 'VALIDATION_FAILED',
): BadInput[] {
  return Object.entries(values).flatMap(([field, list]) =>
    list.map((value) => {
      const what = `${field} is ${value === undefined ? 'missing' : JSON.stringify(value).slice(0, 60)}`;
      return bad(what, target, { ...good, [field]: value }, 400, code);
    }),
  );
}

export const notNames = ['.', '..', '', 'a b', '-a', 'ä', '../x', 'a.b', 'x'.repeat(64), 'a\n', 7, null, ['a'], {}];

export const limit = { says: '10000' };
export const deepFind = (levels: number) => JSON.parse(`${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`) as object;
export const manyConditions = (count: number) => ({ or: Array.from({ length: count }, (_, n) => ({ n })) });
export const filler = (size: number) => 'x'.repeat(size);
