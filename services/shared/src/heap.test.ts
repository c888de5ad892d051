import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { nodeFlags } from './heap';

const root = path.join(__dirname, '../../..');
const source = JSON.stringify(path.join(root, 'services/shared/dist/heap.js'));

test('this Node knows what is asked of its heap and of its threads', async () => {
  const { scripts } = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  expect(scripts['start']).toBe(`node ${nodeFlags.join(' ')} scripts/start.mjs`);
  // To a flag that it does not know V8 answers with a line of complaint, and goes on.
  const text = `require(${source}).collectSeldom(); console.log('done')`;
  expect(await promisify(execFile)(process.execPath, [...nodeFlags, '-e', text])).toEqual({
    stdout: 'done\n',
    stderr: '',
  });
});
