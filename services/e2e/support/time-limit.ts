import { scaledMs } from '@granary/testing/speed';

// Runs before each suite, see jest.config.js. The limit only ends what hangs, so it leaves room for a machine that becomes
// slower during the run. A test that needs longer names its own limit.

jest.setTimeout(scaledMs(process.env['TEST_LONG'] === undefined ? 180_000 : 14_400_000));
