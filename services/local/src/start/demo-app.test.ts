import { readFileSync } from 'node:fs';
import path from 'node:path';
import { curlLines } from './demo-app';

test('the README contains the example calls that npm start prints', () => {
  const readme = readFileSync(path.join(__dirname, '../../../../README.md'), 'utf8');
  const shown = curlLines('http://127.0.0.1:8080', { appId: 'demo', key: '$APP_KEY' });
  expect(readme).toContain(['```sh', ...shown, '```'].join('\n'));
});
