import path from 'node:path';
import { runChild } from './child.mjs';

// The same tests as in every run, at the size that takes most of a day, the live views some hours of it: 300,000 events
// and 500 kills on each transport of the bus, five minutes without the broker, 1 GiB through the gateway to the object
// store and back, backups under tens of thousands of writes, 100,000 keys made twice, a million filters with and
// without indexes by every entrance, as many of which no text is in the SQL, 3,000 orders, 100,000 live views under 30
// changes each, 100 kills amid builds of views, 10,000 looks of readers, 500,000 payouts by copies that crash, and
// 60,000 by processes of which 300 are killed, and paid reads under 50 kills. Nothing is skipped.
const { code } = await runChild(
  process.execPath,
  [
    path.join(import.meta.dirname, 'test.mjs'),
    'bus-chaos',
    'bus-away',
    'services/blobs/test/memory',
    'services/local/test/backup.test',
    'services/data/test/ordered-key',
    'services/data/test/query-',
    'services/data/test/joins.test',
    'services/data/test/live-view',
    'services/local/test/view-crash',
    'services/finance/test/payout-histories',
    'services/local/test/payout-crash',
    'services/local/test/agent-crash',
  ],
  { env: { ...process.env, TEST_LONG: '1', REQUIRE_STACK: '1' }, show: true },
);
process.exitCode = code;
