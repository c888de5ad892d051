import { runJest } from './jest.mjs';

// Load and hostile input by other clients and apps; one suite at a time, so that nothing else affects the measurements.
const { passed, failed, skipped } = await runJest([
  '--selectProjects=attacks',
  '--runInBand',
  ...process.argv.slice(2),
]);
console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = failed > 0 ? 1 : 0;
