import { readFileSync } from 'node:fs';
import path from 'node:path';

interface LockedPackage {
  integrity?: string;
  link?: boolean;
  hasInstallScript?: boolean;
}

const root = path.join(__dirname, '../../../..');
const read = (file: string): unknown => JSON.parse(readFileSync(path.join(root, file), 'utf8'));
const { packages } = read('package-lock.json') as { packages: Record<string, LockedPackage> };
const { allowScripts } = read('package.json') as { allowScripts: Record<string, boolean> };
const locked = Object.entries(packages).filter(([place, { link }]) => place.includes('node_modules/') && !link);
const nameOf = (place: string): string => place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);

test('every package of the registry, for any platform, has its digest in the lock file', () => {
  expect(locked.length).toBeGreaterThan(500);
  const without = locked.filter(([, { integrity }]) => !integrity?.startsWith('sha512-'));
  expect(without.map(([place]) => place)).toEqual([]);
});

test('allowScripts decides about the packages with an install script, and about no others', () => {
  const names = locked.filter(([, { hasInstallScript }]) => hasInstallScript).map(([place]) => nameOf(place));
  const matches = (rule: string, name: string) => new RegExp(`^${rule.replaceAll('*', '[^/]*')}$`).test(name);
  const rules = Object.keys(allowScripts);
  expect(names.filter((name) => !rules.some((rule) => matches(rule, name)))).toEqual([]);
  expect(rules.filter((rule) => !names.some((name) => matches(rule, name)))).toEqual([]);
});
