import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { npm } from './npm.mjs';

/**
 * Runs `npm ci` if node_modules is missing or was installed from another lockfile. Install scripts of packages are not
 * run: none is needed, and an npm that blocks them must not prevent the start.
 */
export async function installWhenNeeded(root, say) {
  const lockfile = path.join(root, 'package-lock.json');
  const stamp = path.join(root, 'node_modules', '.granary-lock');
  const wanted = createHash('sha256').update(readFileSync(lockfile)).digest('hex');
  if (read(stamp) === wanted) return;
  if (!hasAllPackages(root, lockfile)) {
    say('Installing packages …');
    await npm(root, ['ci', '--include=dev', '--ignore-scripts', '--no-audit', '--no-fund']);
  }
  writeFileSync(stamp, wanted);
}

/** Compares npm's record of its last install with the lockfile; packages for other platforms may be absent. */
function hasAllPackages(root, lockfile) {
  const noted = read(path.join(root, 'node_modules', '.package-lock.json'));
  if (noted === undefined) return false;
  const installed = JSON.parse(noted).packages;
  const wanted = JSON.parse(readFileSync(lockfile, 'utf8')).packages;
  return Object.entries(wanted).every(([where, { version, integrity, optional, link }]) => {
    if (!where.startsWith('node_modules/') && !where.includes('/node_modules/')) return true;
    const found = installed[where];
    if (found === undefined) return optional === true;
    return link === true || (found.version === version && found.integrity === integrity);
  });
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
