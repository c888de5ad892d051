import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from './build.mjs';
import { runChild } from './child.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

// The same tests as in every run, at the size that takes the better part of an hour: 100,000 events and 500 kills on
// each transport. Nothing is skipped.
await build();
const { code } = await runChild(process.execPath, [path.join(root, 'node_modules/jest/bin/jest.js'), 'bus-chaos'], {
  cwd: root,
  env: { ...process.env, BUS_CHAOS: 'long', REQUIRE_STACK: '1' },
  show: true,
});
process.exitCode = code;
