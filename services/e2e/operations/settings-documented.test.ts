import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { replaceTables, tableNames } from '@granary/operator/settings/tables';
import type { z } from 'zod';
import {
  readSettings,
  serviceSchemas,
  stackLauncher,
  startLauncher,
  type Launcher,
} from '@granary/local/start/settings';
import { operationsGuide } from './guide';
import { ofStackAlone, rows, usedByEveryStart, valuesInFiles } from '../support/settings-rows';

const root = path.join(__dirname, '../../..');
const example = readFileSync(path.join(root, '.env.example'), 'utf8');

type Fields = Record<string, z.ZodType>;
const launchers: Launcher[] = [startLauncher, stackLauncher];
const allFields: Fields[] = [...launchers.map(({ schema }) => schema), ...Object.values(serviceSchemas)].map(
  ({ shape }) => shape as Fields,
);
const known = [...new Set(allFields.flatMap((fields) => Object.keys(fields)))];
const isSettable = (name: string) => launchers.some((one) => name in one.schema.shape || !one.decides(name));

/** The names in the columns of the guide's tables that say they hold settings. */
function documentedNames(): string[] {
  const names = new Set<string>();
  let columns: number[] = [];
  for (const line of operationsGuide.split('\n')) {
    const cells = line.startsWith('|') ? line.split('|').slice(1, -1) : [];
    if (cells.length === 0) columns = [];
    else if (columns.length === 0) {
      columns = cells.flatMap((cell, at) => (/^\s*(Variable|Environment)\s*$/.test(cell) ? [at] : []));
    }
    const found = columns.flatMap((at) => [...(cells[at] ?? '').matchAll(/`([A-Z][A-Z0-9_]+)`/g)]);
    for (const [, name] of found) names.add(name!);
  }
  return [...names];
}

test('every setting of the guide has a row here, or is one that npm start and npm run stack decide', () => {
  const accounted = [...Object.keys(rows), ...usedByEveryStart, ...valuesInFiles, ...ofStackAlone];
  const missing = documentedNames().filter((name) => !accounted.includes(name) && isSettable(name));
  expect(missing).toEqual([]);
  expect(accounted.filter((name) => !documentedNames().includes(name))).toEqual([]);
});

test('the tables of the guide are those that npm run settings makes, each on a page', () => {
  expect(replaceTables(operationsGuide)).toBe(operationsGuide);
  const marked = [...operationsGuide.matchAll(/^<!-- settings: (.*) -->$/gm)].map(([, name]) => name!);
  expect(marked.sort()).toEqual([...tableNames].sort());
});

test('every setting that a service reads is in the guide', () => {
  expect(known.filter((name) => !operationsGuide.includes(`\`${name}\``))).toEqual([]);
});

/** What a default of the guide's tables means: `64 MiB` is 67108864. */
function valueOf(cell: string): string {
  const units: Record<string, number> = { MiB: 1024 ** 2, GiB: 1024 ** 3, day: 86_400_000, hours: 3_600_000 };
  const [, digits, unit] = /^([\d,]+)(?: (\w+))?$/.exec(cell) ?? [];
  if (digits === undefined) return cell.replaceAll('`', '');
  return String(Number(digits.replaceAll(',', '')) * (unit === undefined ? 1 : units[unit]!));
}

test('every default in the tables of the guide is that of a service or a launcher', () => {
  const wrong: unknown[] = [];
  let columns: { name: number; value: number } | undefined;
  for (const line of operationsGuide.split('\n')) {
    const cells = line.startsWith('|') ? line.split('|').map((cell) => cell.trim()) : [];
    const header = {
      name: cells.findIndex((cell) => /^(Variable|Environment)$/.test(cell)),
      value: cells.indexOf('Default'),
    };
    columns = cells.length === 0 ? undefined : (columns ?? header);
    if (columns === undefined || columns === header || columns.name < 0 || columns.value < 0) continue;
    const names = [...cells[columns.name]!.matchAll(/`([A-Z][A-Z0-9_]+)`/g)].map(([, name]) => name!);
    const values = names.length > 1 ? cells[columns.value]!.split(', ') : [cells[columns.value]!];
    for (const [at, name] of names.entries()) {
      const known = allFields.flatMap((fields) => (name in fields ? [fields[name]!.safeParse(undefined).data] : []));
      const defaults = known.filter((value) => value !== undefined).map(String);
      const shown = valueOf(values[at] ?? '');
      // Where a service has no default the guide says in words what holds.
      if (known.length === defaults.length && known.length > 0 && !defaults.includes(shown))
        wrong.push({ name, shown, defaults });
    }
  }
  expect(wrong).toEqual([]);
});

test('.env.example has every setting of npm start and npm run stack once, with its default', () => {
  const lines = example.split('\n').filter((line) => !/^(# [^=]*)?$/.test(line) && !line.startsWith('# ---'));
  const shown = lines.map((line) => /^# ([A-Z][A-Z0-9_]*)=(.*)$/.exec(line)?.slice(1) ?? [line]);
  expect(shown.map(([name]) => name).sort()).toEqual(known.filter(isSettable).sort());
  for (const [name = '', text] of shown) {
    // The launcher comes first: what it says by itself counts before what a service alone would say.
    const defaults = allFields.flatMap((fields) => (name in fields ? [fields[name]!.safeParse(undefined).data] : []));
    const expected = name === 'PUBLIC_URL' ? undefined : defaults[0];
    expect([name, text]).toEqual([name, expected === undefined ? '' : String(expected as string | number | boolean)]);
  }
});

test('settings without a visible effect reach the services that read them', () => {
  const environment = Object.fromEntries(Object.entries(rows).map(([name, { value }]) => [name, value]));
  for (const launcher of launchers) {
    const { own, services } = readSettings(launcher, environment);
    for (const name of Object.keys(rows).filter((one) => rows[one]!.effect === undefined)) {
      const given = name in launcher.schema.shape ? String(own[name]) : services[name];
      expect([name, given]).toEqual([name, rows[name]!.value]);
      for (const fields of allFields.filter((one) => name in one)) {
        const read = fields[name]!.parse(given);
        expect([name, String(read)]).toEqual([name, rows[name]!.value]);
        expect(read).not.toEqual(fields[name]!.safeParse(undefined).data);
      }
    }
  }
});

describe('an unknown name', () => {
  const warningsFor = (name: string, launcher: Launcher = startLauncher) =>
    readSettings(launcher, { [name]: '5000' }).warnings;

  test.each([
    ['DRAIN_TIMOUT_MS', 'DRAIN_TIMEOUT_MS'],
    ['CORS_ORIGIN', 'CORS_ORIGINS'],
    ['TRUSTPROXY', 'TRUST_PROXY'],
    ['MAX_BLOB_BYTE', 'MAX_BLOB_BYTES'],
    ['PUBLIC_ULR', 'PUBLIC_URL'],
    ['GRANARY_MAX_BLOB_BYTES', 'MAX_BLOB_BYTES'],
    ['GRANARY_CORS_ORIGIN', 'CORS_ORIGINS'],
    ['max_blob_bytes', 'MAX_BLOB_BYTES'],
  ])('%s is warned of, with %s', (name, meant) => {
    expect(warningsFor(name)).toEqual([`${name} is not a setting of Granary. Did you mean ${meant}?`]);
  });

  test('in the file .env, which nothing else reads, is warned of whatever it resembles', () => {
    const text = 'PORT=8080\nCORS_ORIGIN=https://a.example\n# NOTE=1\nOTEL_BSP_MAX_QUEUE_SIZE=9\nFRONTEND=1\n';
    const directory = mkdtempSync(path.join(os.tmpdir(), 'granary-env-'));
    const file = path.join(directory, '.env');
    writeFileSync(file, text);
    try {
      expect(readSettings(startLauncher, { ...parseEnv(text), GRANARY_ENV_FILE: file }).warnings).toEqual([
        'CORS_ORIGIN is not a setting of Granary. Did you mean CORS_ORIGINS?',
        'FRONTEND is not a setting of Granary.',
      ]);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  test('a warning names GRANARY_ANYTHING', () => {
    expect(warningsFor('GRANARY_ANYTHING')).toEqual(['GRANARY_ANYTHING is not a setting of Granary.']);
  });

  test.each([
    'HOSTNAME',
    'PATH',
    'HOME',
    'SSL_CERT_FILE',
    'OTEL_BSP_MAX_QUEUE_SIZE',
    'EDITOR',
    'GRANARY_URL',
    'PORTS_OF_X',
  ])('%s, which others use, is not', (name) => expect(warningsFor(name)).toEqual([]));

  test('a warning names a setting that the launcher decides', () => {
    expect(warningsFor('S3_BUCKET')).toEqual(['S3_BUCKET has no effect with npm start, which sets it itself.']);
    expect(warningsFor('KEY_FILE', stackLauncher)).toHaveLength(1);
  });
});
