import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { seededRandom, type Random } from '../../data/test/support/random';
import { sendFile } from '../support/import-client';
import { borrowGranary, newApp, type Granary, type TestApp } from '../support/granary';

/**
 * Files of every format in which bytes were changed, left out, repeated or cut off. None of them is a fault of the
 * server, each record is stored or has an error, and errors name the lines and the bytes where their records begin.
 */
const fileCount = size({ run: 200, long: 2_000 });

let granary: Granary;
let app: TestApp;
beforeAll(async () => {
  granary = await borrowGranary('direct', 'simulated');
  app = await newApp(granary);
});
afterAll(() => granary.stop());

const formats = ['ndjson', 'json', 'csv'] as const;
type Format = (typeof formats)[number];
type RecordError = { line: number; offset: number; code: string; error: string };

function fileText(random: Random, format: Format): string {
  const words = ['é', '€', '"', '\\', ',', 'x'.repeat(random(40)), '\n', '{', '[1]', '\u0001'];
  const documents = Array.from({ length: 1 + random(30) }, (_, n) => ({ n, t: words[random(words.length)]! + n }));
  if (format === 'csv') {
    return `n,t\n${documents.map(({ n, t }) => `${n},"${t.replaceAll('"', '""')}"`).join(random(2) === 0 ? '\n' : '\r\n')}`;
  }
  const texts = documents.map((document) => JSON.stringify(document));
  return format === 'json' ? `[${texts.join(random(2) === 0 ? ',' : ',\n')}]` : `${texts.join('\n')}\n`;
}

const hostile = Buffer.from('\n\r"\\{}[],:\0é\xff\xfe 0', 'latin1');

function damaged(random: Random, text: string): Buffer {
  let bytes = Buffer.from(text);
  for (let times = 1 + random(3); times > 0; times -= 1) {
    const place = random(bytes.length + 1);
    const rest = [
      () => bytes.subarray(place + 1),
      () => bytes.subarray(place),
      () => Buffer.concat([hostile.subarray(random(hostile.length)).subarray(0, 1), bytes.subarray(place + random(2))]),
      () => bytes.subarray(random(bytes.length + 1)),
      () => Buffer.alloc(0),
    ][random(5)]!();
    bytes = Buffer.concat([bytes.subarray(0, place), rest]);
  }
  return bytes;
}

const linesBefore = (bytes: Buffer, offset: number): number =>
  bytes.subarray(0, offset).reduce((count, byte) => count + (byte === 0x0a ? 1 : 0), 0);

/** The lines that hold something, and whether each is one JSON object in UTF-8 by the parser of the language. */
function judgedLines(bytes: Buffer): Map<number, boolean> {
  const lines = new Map<number, boolean>();
  let start = 0;
  for (let number = 1; start < bytes.length; number += 1) {
    const end = bytes.indexOf(0x0a, start) < 0 ? bytes.length : bytes.indexOf(0x0a, start);
    const line = bytes.subarray(start, end);
    if (/[^\t\r ]/.test(line.toString('latin1'))) lines.set(number, isObject(line));
    start = end + 1;
  }
  return lines;
}

function isObject(line: Buffer): boolean {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(line));
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

/** What a strict reader refuses although it is JSON. */
const strictness = /more than once|twice|duplicate|range|too large|surrogate|U\+0000|__proto__|NUL/i;

async function tryFile(random: Random, format: Format, bytes: Buffer): Promise<void> {
  const query = `format=${format}&on_error=continue${random(4) === 0 ? '&dry_run=true' : ''}`;
  const path = `/api/apps/${app.appId}/collections/${format}/import?${query}`;
  const answer = await sendFile({ url: granary.url, method: 'POST', path, key: app.key, bytes });
  const { status, body } = answer!;
  const details = (body['details'] ?? {}) as { import_id?: string; line?: number; offset?: number };
  const id = status === 200 ? body['import_id'] : details.import_id;
  expect([200, 400]).toContain(status);
  const errorsPath = `/api/apps/${app.appId}/imports/${String(id)}/errors`;
  const { errors } = (await app.call<{ errors: RecordError[] }>('GET', errorsPath)).body;
  for (const { line, offset } of errors) expect(line).toBe(1 + linesBefore(bytes, offset));
  if (status !== 200) {
    expect(details.line).toBe(1 + linesBefore(bytes, details.offset!));
    return;
  }
  expect(body).toMatchObject({ offset: bytes.length, lines: linesBefore(bytes, bytes.length), failed: errors.length });
  if (format !== 'ndjson') return;
  const judged = judgedLines(bytes);
  const failed = new Map(errors.map((error) => [error.line, error]));
  for (const [line, isFine] of judged) {
    if (!isFine) expect([line, failed.has(line)]).toEqual([line, true]);
    else if (failed.has(line)) expect(failed.get(line)!.error).toMatch(strictness);
  }
  expect(Number(body['written']) + errors.length).toBe(judged.size);
}

test.each(partsOf('damaged files', fileCount))(
  'a damaged file is stored as far as it can be, and its errors name their lines (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let number = 0; number < cases; number += 1) {
      const format = formats[random(formats.length)]!;
      const bytes = damaged(random, fileText(random, format));
      await tryFile(random, format, bytes).catch((error: unknown) => {
        throw new Error(`${format}: ${JSON.stringify(bytes.toString('latin1'))}`, { cause: error });
      });
    }
  },
  sizedLimitMs(limitMs(60_000)),
);
