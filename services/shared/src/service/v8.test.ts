import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { heapFlag, nodeFlags } from './v8';

const root = path.join(__dirname, '../../../..');

test('this Node knows what is asked of its heap and its threads, and npm start asks for it', async () => {
  const { scripts } = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  expect(scripts['start']).toBe(`node ${nodeFlags.join(' ')} scripts/start.mjs`);
  // V8 only complains of a flag that it does not know, and goes on.
  const text = `require('node:v8').setFlagsFromString('${heapFlag}'); console.log('done')`;
  expect(await promisify(execFile)(process.execPath, [...nodeFlags, '-e', text])).toEqual({
    stdout: 'done\n',
    stderr: '',
  });
});
