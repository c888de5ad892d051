import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describeWith } from '@granary/testing/stack';
import { buildTimeoutMs, chart, readText, runChartTool } from './chart';

describeWith(describe, 'helm')('helm-unittest', () => {
  test(
    'charts/granary/tests pass',
    async () => {
      const { code, output } = await runChartTool('helm-unittest', ['--strict', chart]);
      expect({ code, output: code === 0 ? '' : output }).toEqual({ code: 0, output: '' });
      expect(output).toMatch(/Test Suites: 4 passed, 4 total\nTests: +16 passed, 16 total/);
    },
    buildTimeoutMs,
  );

  test('a template that renders something else fails them', async () => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'granary-chart-'));
    try {
      await cp(chart, folder, { recursive: true });
      const text = await readText('charts/granary/templates/scaling.yaml');
      const changed = text.replace(
        'unhealthyPodEvictionPolicy: AlwaysAllow',
        'unhealthyPodEvictionPolicy: IfHealthyBudget',
      );
      expect(changed).not.toBe(text);
      await writeFile(path.join(folder, 'templates/scaling.yaml'), changed);
      const { code, output } = await runChartTool('helm-unittest', ['--file', 'tests/scaling_test.yaml', folder]);
      expect(code).toBe(1);
      expect(output).toContain('should keep all copies of a service but one');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
