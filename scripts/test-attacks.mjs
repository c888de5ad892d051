import { runJest } from './jest.mjs';

// What strangers and neighbours do to an app; one suite after the other, so that nothing else is measured.
const { passed, failed, skipped } = await runJest([
  '--selectProjects=attacks',
  '--runInBand',
  ...process.argv.slice(2),
]);
console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = failed > 0 ? 1 : 0;
