import { isSkippedWithout } from '@granary/testing/stack';

// Runs before each suite of the pass on a stack, see jest.config.js.

process.env['GRANARY_TEST_PASS'] = 'stack';

if (isSkippedWithout('kafka', 'minio')) {
  // A suite of its own choice may skip what is skipped already.
  const skipped = Object.assign(describe.skip, { skip: describe.skip });
  Object.assign(globalThis, { describe: skipped, test: test.skip, it: it.skip });
}
