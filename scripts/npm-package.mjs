import { createHash } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from './child.mjs';
import { npm } from './npm.mjs';

/** @typedef {{ name: string, version: string, integrity: string }} NpmPackage With the digest of its archive. */

/**
 * Returns the path of one file of a package of npm that is not installed with the others, because few need it. It is
 * kept in the cache. Throws an error if the package is not the one with this digest. Needs a built checkout.
 * @param {NpmPackage} npmPackage @param {string} file
 */
export async function fileOfPackage({ name, version, integrity }, file) {
  const { installOnce } = await import('@granary/stack/tools/cache');
  const folder = await installOnce(`${name}-${version}`, async (staging) => {
    await npm(staging, ['pack', '--silent', '--prefer-offline', `${name}@${version}`]);
    const archive = path.join(staging, `${name}-${version}.tgz`);
    const digest = createHash('sha512').update(readFileSync(archive)).digest('base64');
    if (`sha512-${digest}` !== integrity) throw new Error(`${name} ${version} is not the package that is expected`);
    const unpacked = await runChild('tar', ['-xzf', archive, '-C', staging, '--strip-components=1', `package/${file}`]);
    if (unpacked.code !== 0) throw new Error(`tar failed: ${unpacked.output}`);
    rmSync(archive);
  });
  return path.join(folder, file);
}
