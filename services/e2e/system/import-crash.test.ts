import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { readExport, wholeLines } from '../support/export-client';
import { send } from '../support/granary';
import { partHeaders, sendFile } from '../support/import-client';
import { CrashingGranary } from './crashing-granary';

const kills = size({ run: 4, long: 50 });
/** So many that several parts are stored between two kills. */
const linesOfFile = kills * 40_000;
const seed = seedOf('system/import-crash');
const random = seededRandom(seed);

let granary: CrashingGranary;
beforeAll(async () => {
  granary = await CrashingGranary.start('import-crash');
});
afterAll(() => granary?.end());

/** The import as it is, once there is somebody to say so. */
const stateOf = (path: string) =>
  eventually(async () => {
    const { url, app } = granary;
    const answer = await send<{ offset: number; status: string }>(url, 'GET', path, { key: app.key }).catch(
      () => undefined,
    );
    return answer?.status === 200 ? answer.body : undefined;
  }, 30_000);

test(
  `after kill -9 in the middle of an import, by the seed ${seed}, it goes on from its offset, and no line is lost or there twice`,
  async () => {
    // Documents without ids: a line that is stored twice makes two.
    const file = Buffer.from(
      Array.from({ length: linesOfFile }, (_, n) => `{"n":${n},"text":"${'x'.repeat(n % 300)}"}\n`).join(''),
    );
    const base = `/api/apps/${granary.app.appId}`;
    const body = { collection: 'lines', size_bytes: file.length };
    const begun = await send<{ import_id: string }>(granary.url, 'POST', `${base}/imports`, {
      key: granary.app.key,
      body,
    });
    const path = `${base}/imports/${begun.body.import_id}`;
    let killed = 0;
    let state = await stateOf(path);
    while (state.status === 'open') {
      const { url, app } = granary;
      const rest = file.subarray(state.offset);
      const headers = partHeaders(state.offset, true);
      let isSending = true;
      const sending = sendFile({ url, method: 'PATCH', path, key: app.key, headers, bytes: rest }).finally(() => {
        isSending = false;
      });
      // A kill of Postgres alone does not end the request.
      while (killed < kills) {
        const { offset } = state;
        state = await eventually(async () => {
          const now = await stateOf(path);
          return !isSending || now.offset > offset ? now : undefined;
        }, 60_000);
        if (!isSending) break;
        await delay(random() * 60);
        await (random() < 0.6 ? granary.killNode() : granary.killPostgres());
        killed += 1;
      }
      await sending;
      state = await stateOf(path);
    }
    expect(state).toMatchObject({ status: 'completed', offset: file.length, written: linesOfFile });
    expect(killed).toBeGreaterThan(kills / 2);
    const { url, app } = granary;
    const { text } = await readExport({ url, key: app.key, path: `${base}/collections/lines/export?select=n` });
    const numbers = wholeLines(text).map((line) => (JSON.parse(line) as { n: number }).n);
    expect(numbers.sort((one, other) => one - other)).toEqual(Array.from({ length: linesOfFile }, (_, n) => n));
  },
  sizedLimitMs(limitMs(180_000)),
);
