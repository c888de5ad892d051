import { isLong } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';

// Runs before each suite, see jest.config.js. The limit only ends what hangs, so it leaves room for a machine that
// becomes slower during the run. A test that needs longer names its own limit.

jest.setTimeout(limitMs(isLong ? 14_400_000 : 180_000));
