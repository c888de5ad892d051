import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { seededRandom, type Random } from '../../data/test/support/random';
import { readExport, wholeLines } from '../support/export-client';
import { partHeaders, sendFile, type FileAnswer, type FileRequest } from '../support/import-client';
import { newApp, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

/**
 * Files of every format are sent to two gateways with a data service each, in one request that is repeated or in parts,
 * and cut off at random bytes again and again. Each has to be stored whole and once: its documents have no ids, so that
 * a line that is stored twice makes two.
 */
const linesOfFile = size({ run: 20_000, long: 2_000_000 });
const cutsOfFile = size({ run: 5, long: 50 });
const fileCount = 5;

let granaries: Granary[] = [];
beforeAll(async () => {
  const one = await startGranary('direct');
  granaries = [one, await startGranary('wire', { databaseUrls: { data: one.databaseUrls.data } })];
});
afterAll(async () => {
  for (const granary of granaries) await granary.stop();
});

const formats = ['ndjson', 'json', 'csv'] as const;
type Format = (typeof formats)[number];

/** A file whose records have the numbers from 0 on, some of which cannot be stored. */
interface TestFile {
  format: Format;
  bytes: Buffer;
  stored: number[];
  failed: number;
}

function makeFile(random: Random, format: Format, count: number): TestFile {
  const records: string[] = [];
  const stored: number[] = [];
  for (let number = 0; number < count; number += 1) {
    const isBroken = random(2_000) === 0;
    if (!isBroken) stored.push(number);
    records.push(recordOf(random, format, number, isBroken));
  }
  const end = random(2) === 0 ? '\n' : '';
  const text = {
    ndjson: () => records.join('\n') + end,
    json: () => `[${records.join(random(2) === 0 ? ',' : ' ,\n ')}]${end}`,
    csv: () => `n,text\r\n${records.join('\r\n')}${end}`,
  }[format]();
  return { format, bytes: Buffer.from(text), stored, failed: count - stored.length };
}

function recordOf(random: Random, format: Format, number: number, isBroken: boolean): string {
  const text = `${['é', '"', ',\n', 'x'.repeat(random(200)), ']}{['][random(5)]!}${number}`;
  if (format === 'csv') return isBroken ? `${number},"a" b` : `${number},"${text.replaceAll('"', '""')}"`;
  if (isBroken) return format === 'json' ? `"${number}"` : `{"n":${number}`;
  return JSON.stringify({ n: number, text });
}

class FileImport {
  cuts = 0;

  constructor(
    private readonly random: Random,
    private readonly app: TestApp,
    private readonly file: TestFile,
  ) {}

  private get target(): Pick<FileRequest, 'url' | 'key'> {
    return { url: granaries[this.random(granaries.length)]!.url, key: this.app.key };
  }

  /** Where the next connection is cut off, among so many bytes; nowhere after the last cut. */
  private nextCut(bytes: number): number {
    return this.cuts < cutsOfFile ? this.random(bytes) : Infinity;
  }

  /** The same request again and again, until one of them is answered. */
  async inOneRequest(): Promise<Record<string, unknown>> {
    const { format, bytes } = this.file;
    const path = `/api/apps/${this.app.appId}/collections/films/import?format=${format}&on_error=continue${typesFor(format)}`;
    const headers = { 'idempotency-key': 'the-file' };
    for (;;) {
      const request: FileRequest = { ...this.target, method: 'POST', path, headers, bytes };
      // Sometimes the next request comes while the one before it is still being received.
      if (this.random(3) === 0) void sendFile({ ...request, ...this.target }, this.random(bytes.length));
      const answer = await sendFile(request, this.nextCut(bytes.length));
      if (!answer) this.cuts += 1;
      else if (answer.status === 503) await retryDelay(answer);
      else return this.whole(answer.status, answer.body);
    }
  }

  /** Parts of any size, each from where the import is. */
  async inParts(): Promise<Record<string, unknown>> {
    const { format, bytes } = this.file;
    const members = {
      collection: 'films',
      format,
      on_error: 'continue',
      ...(format === 'csv' && { types: { n: 'number' } }),
    };
    const begun = await this.app.call<{ import_id: string }>('POST', `/api/apps/${this.app.appId}/imports`, members);
    const path = `/api/apps/${this.app.appId}/imports/${begun.body.import_id}`;
    for (;;) {
      const offset = await this.offsetOf(path);
      const length = this.random(3) === 0 ? bytes.length : this.random(bytes.length);
      const part = bytes.subarray(offset, offset + length);
      const isComplete = offset + part.length === bytes.length;
      const isZipped = this.random(4) === 0;
      const headers = { ...partHeaders(offset, isComplete), ...(isZipped && { 'content-encoding': 'gzip' }) };
      const sent = isZipped ? gzipSync(part, { level: 1 }) : part;
      const answer = await sendFile(
        { ...this.target, method: 'PATCH', path, headers, bytes: sent },
        this.nextCut(sent.length + 1),
      );
      if (!answer) this.cuts += 1;
      else if (answer.status === 503) await retryDelay(answer);
      else if (answer.body['code'] === 'IMPORT_ENDED') return this.whole(200, (await this.app.call('GET', path)).body);
      // What came before a cut may still be being stored.
      else if (answer.status !== 409) this.whole(answer.status, answer.body);
      if (answer?.body['status'] === 'completed') return answer.body;
    }
  }

  private async offsetOf(path: string): Promise<number> {
    const { headers } = await this.app.call('HEAD', path);
    return Number(headers.get('upload-offset'));
  }

  private whole(status: number, body: Record<string, unknown>): Record<string, unknown> {
    expect([status, status === 200 ? '' : body]).toEqual([200, '']);
    return body;
  }

  async check(report: Record<string, unknown>): Promise<void> {
    const { bytes, stored, failed } = this.file;
    const counts = { offset: bytes.length, written: stored.length, failed, skipped: 0, status: 'completed' };
    expect(report).toMatchObject(counts);
    const { url, key } = this.target;
    const { text } = await readExport({
      url,
      key,
      path: `/api/apps/${this.app.appId}/collections/films/export?select=n`,
    });
    const numbers = wholeLines(text).map((line) => (JSON.parse(line) as { n: number }).n);
    expect(numbers.sort((one, other) => one - other)).toEqual(stored);
  }
}

/**
 * The places of an app are taken where the requests before, which were cut off, still store what came of them: the next
 * one is to come later.
 */
const retryDelay = ({ headers }: FileAnswer): Promise<void> => delay(Number(headers['retry-after']) * 1_000);

const typesFor = (format: Format): string => (format === 'csv' ? '&types=n:number' : '');

test.each(partsOf('imports', fileCount))(
  'a file is stored whole and once, wherever its connections are cut off (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let number = 0; number < cases; number += 1) {
      const app = await newApp(granaries[0]!);
      const one = new FileImport(random, app, makeFile(random, formats[random(formats.length)]!, linesOfFile));
      const report = random(2) === 0 ? await one.inOneRequest() : await one.inParts();
      await one.check(report);
      expect(one.cuts).toBeGreaterThan(0);
    }
  },
  sizedLimitMs(limitMs(120_000)),
);
