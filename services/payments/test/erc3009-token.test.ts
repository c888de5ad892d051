import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

test('the bytecode of the token that the tests use is what its source compiles to', async () => {
  const script = join(__dirname, '..', '..', '..', 'scripts', 'erc3009-token.mjs');
  await promisify(execFile)(process.execPath, [script, '--check']);
});
