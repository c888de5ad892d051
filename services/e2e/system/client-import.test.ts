import { setTimeout as delay } from 'node:timers/promises';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { ClientPackage } from '../clients/client-package';
import { readExport, wholeLines } from '../support/export-client';
import { CrashingGranary } from './crashing-granary';

const kills = size({ run: 3, long: 20 });
/** Some five seconds of work for each kill. */
const recordsOfKill = 60_000;

test(
  'an import by the client library goes through kills of the service, and stores each record once',
  async () => {
    const records = kills * recordsOfKill;
    const client = await ClientPackage.install();
    const granary = await CrashingGranary.start('client-import');
    try {
      const { url } = granary;
      const { appId: app, key } = granary.app;
      let isRunning = true;
      let killed = 0;
      const importing = client
        .run<{ status: string; written: number }>('import-file', { url, app, key, records })
        .finally(() => (isRunning = false));
      const killing = (async () => {
        while (isRunning && killed < kills) {
          await delay(1_000 + (killed % 3) * 700);
          if (!isRunning) return;
          await granary.killNode();
          killed += 1;
        }
      })();
      const [report] = await Promise.all([importing, killing]);
      expect(report).toEqual({ status: 'completed', written: records });
      expect(killed).toBe(kills);
      const path = `/api/apps/${app}/collections/rows/export?select=n`;
      const { text, isWhole } = await readExport({ url, key, path });
      const numbers = wholeLines(text).map((line) => (JSON.parse(line) as { n: number }).n);
      expect(isWhole).toBe(true);
      expect(numbers.length).toBe(records);
      expect(new Set(numbers).size).toBe(records);
    } finally {
      await granary.end();
      await client.remove();
    }
  },
  sizedLimitMs(limitMs(300_000)),
);
