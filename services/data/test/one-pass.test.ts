import { compileWatch, documentDepthMax, readDocument } from '../src/json/document';
import { JsonError, type JsonErrorReason } from '@granary/shared/json/error';
import { JsonReader } from '@granary/shared/json/reader';
import { testDatabase } from '@granary/testing/database';
import { partsOf, type SeededPart } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { Client } from 'pg';
import { JsonWriter, mutate, Random } from './support/json-texts';

const textCount = size({ run: 10_000, long: 100_000 });
const batchSize = 5_000;

const watch = compileWatch([['a'], ['a', 'b'], ['b', '0'], ['id'], ['c', '1', 'a']]);

/** Our judgement: undefined when the text is accepted, as any JSON value or as a document. */
function judge(bytes: Buffer): { value: JsonErrorReason | undefined; document: JsonErrorReason | undefined } {
  const reasonOf = (read: (reader: JsonReader) => unknown): JsonErrorReason | undefined => {
    try {
      const reader = new JsonReader(bytes, { maxDepth: documentDepthMax });
      read(reader);
      reader.end();
      return undefined;
    } catch (error) {
      if (error instanceof JsonError) return error.reason;
      throw error;
    }
  };
  return {
    value: reasonOf((reader) => reader.skipValue()),
    document: reasonOf((reader) => readDocument(reader, watch)),
  };
}

/** Postgres can be sent any text but one that is no UTF-8 or holds a NUL: it can store neither. */
function sendable(bytes: Buffer): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Whether a rule of ours that Postgres does not have applies to a text that Postgres takes. */
const ownRules: Partial<Record<JsonErrorReason, (text: string) => boolean>> = {
  TOO_DEEP: (text) => depthOf(JSON.parse(text)) > 64,
  FORBIDDEN_KEY: (text) => {
    let found = false;
    JSON.parse(text, (key, value: unknown) => {
      found ||= key === '__proto__';
      return value;
    });
    return found;
  },
  NUMBER_OUT_OF_RANGE: (text) =>
    (text.replaceAll(/"(?:[^"\\]|\\.)*"/gs, '""').match(/[0-9][0-9.eE+-]*/g) ?? []).some((number) => {
      const [mantissa = '', exponent = '0'] = number.toLowerCase().split('e');
      const [whole = '', fraction = ''] = mantissa.split('.');
      const significant = (whole + fraction).replace(/^0+/, '');
      const magnitude = significant.length - 1 - fraction.length + Number(exponent);
      return (
        (whole + fraction).length > 64 ||
        Math.abs(Number(exponent)) > 308 ||
        (significant !== '' && Math.abs(magnitude) > 308)
      );
    }),
  INVALID_ID: (text) => {
    const { id } = JSON.parse(text) as { id: unknown };
    return id === '' || typeof id === 'boolean' || (typeof id === 'object' && id !== null);
  },
};

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Object.values(value).reduce<number>((deepest, member) => Math.max(deepest, depthOf(member)), 0);
}

/** Which of the texts of a part are judged otherwise than by Postgres, without a rule of ours that says so. */
async function compareTexts(client: Client, { seed, cases }: SeededPart, count: (what: string) => void) {
  const random = new Random(seed);
  const writer = new JsonWriter(random);
  const wrong: unknown[] = [];
  for (let done = 0; done < cases; done += batchSize) {
    const texts = Array.from({ length: Math.min(batchSize, cases - done) }, (_, i) => {
      const text = Buffer.from(writer.document());
      return i % 2 === 0 ? text : mutate(random, text);
    });
    const sent = texts.map((bytes) => ({ bytes, text: sendable(bytes) }));
    const { rows } = await client.query<{ value: boolean; document: boolean }>(
      `select pg_input_is_valid(t, 'jsonb') and t is json with unique keys as value,
              pg_input_is_valid(t, 'jsonb') and t is json object with unique keys as document
         from unnest($1::text[]) with ordinality as given (t, place) order by place`,
      [sent.map(({ text }) => text ?? '?')],
    );
    sent.forEach(({ bytes, text }, i) => {
      const ours = judge(bytes);
      const theirs = rows[i]!;
      for (const as of ['value', 'document'] as const) {
        const reason = ours[as];
        count(`${as} ${reason ?? 'accepted'}`);
        const right = theirs[as]
          ? reason === undefined || (text !== undefined && ownRules[reason]?.(text) === true)
          : reason !== undefined;
        const base64 = bytes.toString('base64');
        if (!right) wrong.push({ seed, as, ours: reason ?? 'accepted', postgres: theirs[as], base64, text });
      }
    });
  }
  return wrong;
}

test(`of ${textCount} texts every one that is accepted is jsonb with unique keys to Postgres, and every one that is refused is not, or breaks a rule of ours`, async () => {
  const client = new Client({ connectionString: (await testDatabase()).url });
  await client.connect();
  const seen = new Map<string, number>();
  const count = (what: string) => void seen.set(what, (seen.get(what) ?? 0) + 1);
  try {
    for (const part of partsOf('texts of JSON', textCount)) {
      expect((await compareTexts(client, part, count)).slice(0, 5)).toEqual([]);
    }
  } finally {
    await client.end();
  }

  // The texts are worth something only if they reach every rule.
  expect(seen.get('document accepted')).toBeGreaterThan(0.3 * textCount);
  expect(seen.get('document MALFORMED')).toBeGreaterThan(0.2 * textCount);
  const reasons: JsonErrorReason[] = [
    'INVALID_UTF8',
    'BYTE_ORDER_MARK',
    'NUL_CHARACTER',
    'LONE_SURROGATE',
    'TOO_DEEP',
    'DUPLICATE_KEY',
    'FORBIDDEN_KEY',
    'NUMBER_OUT_OF_RANGE',
    'NOT_AN_OBJECT',
    'INVALID_ID',
  ];
  expect(reasons.filter((reason) => (seen.get(`document ${reason}`) ?? 0) < textCount / 2_000)).toEqual([]);
});
