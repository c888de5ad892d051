import { scaledMs } from '@granary/shared/testing/speed';

// Runs before each suite, see jest.config.js. A test that needs longer than this names its own limit.

jest.setTimeout(scaledMs(60_000));
