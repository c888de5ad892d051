import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { gatewayConfig } from '@granary/gateway/config';
import { builtServices } from '@granary/testing/stack';
import { readSettings, startLauncher } from '@granary/local/start/settings';
import { endAllProcesses, OwnStart } from '../support/own-process';

const root = path.join(__dirname, '../../..');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');
const unitFile = path.join(root, 'deploy/systemd/granary.service');
const unit = read('deploy/systemd/granary.service');
const proxy = read('deploy/nginx/granary.conf');
const guide = read('docs/server.md');

const ofUnit = (name: string): string => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1] ?? '';
const secondsOf = (name: string): number => Number(new RegExp(`^\\s*${name} (\\d+)s;`, 'm').exec(proxy)?.[1]);
const defaultOf = (name: keyof typeof gatewayConfig.shape): number =>
  gatewayConfig.shape[name].parse(undefined) as number;

afterAll(() => endAllProcesses());

test('systemd finds no fault in the unit, if systemd is installed', () => {
  const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
  if (hasSystemd) expect(execFileSync('systemd-analyze', ['verify', unitFile], { encoding: 'utf8' })).toBe('');
  // It stops Node alone, and waits for longer than Node gives itself.
  expect(ofUnit('KillMode')).toBe('mixed');
  const ownMs = defaultOf('DRAIN_DELAY_MS') + defaultOf('DRAIN_TIMEOUT_MS') + 20_000;
  expect(Number(ofUnit('TimeoutStopSec')) * 1000).toBeGreaterThan(ownMs);
});

test('Granary started like the unit answers, logs no error, prints no key and stops in order', async () => {
  await builtServices();
  const dataDir = await mkdtemp(path.join(os.tmpdir(), 'granary-unit-'));
  const [node, ...args] = ofUnit('ExecStart').split(' ');
  expect(node).toBe('/usr/bin/node');
  const assignments = ofUnit('Environment').split(' ');
  const environment = Object.fromEntries(assignments.map((text) => text.split('=') as [string, string]));
  const { NODE_ENV = '', SHOW_KEYS = '' } = environment;
  const settings = { NODE_ENV, SHOW_KEYS, LOG_LEVEL: 'info' };
  const started = await OwnStart.ready({ args, cwd: root }, dataDir, settings);
  expect((await fetch(`${started.url}/readyz`)).status).toBe(200);
  expect(started.output()).toContain('"level":30');
  expect(started.output()).not.toContain('"err":');
  expect(started.output()).not.toContain(started.app.key);
  expect(started.output()).not.toContain(read(path.relative(root, path.join(dataDir, 'operator-key'))).trim());
  await started.end('SIGTERM');
  expect(await started.exit).toBe(0);
  await rm(dataDir, { recursive: true, force: true });
});

test('the settings that the guide suggests exist and are valid', () => {
  const [, block = ''] = /```ini\n([^]*?)```/.exec(guide) ?? [];
  const suggested = Object.fromEntries(
    block
      .trim()
      .split('\n')
      .map((line) => line.split('=') as [string, string]),
  );
  expect(Object.keys(suggested)).toContain('TRUST_PROXY');
  expect(readSettings(startLauncher, suggested).warnings).toEqual([]);
});

test('the proxy of the guide has no limit below those of Granary, and forwards the client address', () => {
  expect(secondsOf('keepalive_timeout') * 1000).toBeLessThan(defaultOf('KEEP_ALIVE_TIMEOUT_MS'));
  expect(secondsOf('proxy_read_timeout') * 1000).toBeGreaterThan(defaultOf('REQUEST_TIMEOUT_MS'));
  expect(secondsOf('proxy_read_timeout') * 1000).toBeGreaterThan(defaultOf('IDLE_TIMEOUT_MS'));
  expect(proxy).toMatch(/^\s*client_max_body_size 0;$/m);
  expect(proxy).toMatch(/^\s*proxy_next_upstream off;$/m);
  for (const name of ['X-Forwarded-For', 'X-Forwarded-Host', 'X-Forwarded-Proto']) {
    expect(proxy).toMatch(new RegExp(`^\\s*proxy_set_header ${name} `, 'm'));
  }
});
