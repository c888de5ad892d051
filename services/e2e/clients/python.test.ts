import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeWith, pythonForTests } from '@granary/testing/stack';
import { borrowGranary, newApp, type Granary } from '../support/granary';
import { runProgram, withFolder } from './generated';

describeWith(describe, 'python')('a client in Python', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await borrowGranary('direct');
  });
  afterAll(() => granary?.stop());

  test('is generated, imported, and pages and filters among its calls', async () => {
    const { appId, key } = await newApp(granary);
    const python = await pythonForTests();
    await withFolder(async (folder) => {
      const target = [
        '--url',
        `${granary.url}/openapi.json`,
        '--output-path',
        folder,
        '--overwrite',
        '--meta',
        'poetry',
      ];
      const config = ['--config', join(__dirname, 'python/generator.yaml')];
      const generated = await runProgram(python, ['-m', 'openapi_python_client', 'generate', ...target, ...config], {
        cwd: folder,
      });
      // Texts as bodies are the only thing that the generator cannot do; JSON is there beside them.
      expect(generated.match(/^(?:WARNING|ERROR).*$/gm) ?? []).toEqual([
        expect.stringContaining('PUT /api/skills/{app_id}/skills.md'),
        expect.stringContaining('PUT /api/skills/{app_id}/skills.md'),
      ]);
      expect(generated.match(/^Unsupported .*$/gm)).toEqual([
        'Unsupported content type text/markdown',
        'Unsupported content type text/plain',
      ]);
      await copyFile(join(__dirname, 'python/calls.py'), join(folder, 'calls.py'));
      const said = await runProgram(python, ['-B', 'calls.py', granary.url, appId, key], { cwd: folder });
      expect(Number(/^(\d+) calls$/m.exec(said)?.[1])).toBeGreaterThanOrEqual(20);
    });
  });
});
