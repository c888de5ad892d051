import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { imageVersion, installNode } from '../node.mjs';

/** The user that everything runs as; Kubernetes checks `runAsNonRoot` by this number. */
export const userId = 65532;

/**
 * Puts what a program of Node needs of a system into the folder `target`: Node, the C and C++ libraries of this machine
 * that it is linked with, and an account that is not root. There is no shell, and no folder that this account can write
 * to. Returns what was put there, for the bill of materials.
 * @param {string} target
 */
export async function stageRuntime(target) {
  const node = await installNode(imageVersion);
  put(target, '/usr/bin/node', node);
  const libraries = await librariesOf(node);
  for (const file of libraries) put(target, file, realpathSync(file));
  mkdirSync(path.join(target, 'etc'));
  const account = (/** @type {string} */ name, /** @type {number} */ number) =>
    `${name}:x:${number}:${number}::/:/sbin/nologin\n`;
  writeFileSync(path.join(target, 'etc/passwd'), account('root', 0) + account('granary', userId));
  writeFileSync(path.join(target, 'etc/group'), `root:x:0:\ngranary:x:${userId}:\n`);
  writeFileSync(path.join(target, 'etc/nsswitch.conf'), 'hosts: files dns\n');
  const system = libraries.map((file) => ({
    name: path.basename(file),
    version: digestOf(file),
    purl: `pkg:generic/${path.basename(file)}`,
  }));
  return [{ name: 'node', version: imageVersion, license: 'MIT', purl: `pkg:generic/node@${imageVersion}` }, ...system];
}

/** @param {string} target @param {string} file @param {string} from */
function put(target, file, from) {
  const to = path.join(target, file);
  mkdirSync(path.dirname(to), { recursive: true });
  copyFileSync(from, to);
  chmodSync(to, 0o755);
}

/** @param {string} file */
const digestOf = (file) => createHash('sha256').update(readFileSync(file)).digest('hex').slice(0, 16);

/** The files that a program is linked with, with the loader, as absolute paths. @param {string} program */
async function librariesOf(program) {
  const { code, output } = await runChild('ldd', [program]);
  if (code !== 0) throw new Error(`ldd ${program} failed: ${output}`);
  const libraries = output.split('\n').flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
  // Names are looked up by these where there is no other resolver.
  const resolvers = libraries.flatMap((file) =>
    ['libnss_dns.so.2', 'libnss_files.so.2'].map((name) => path.join(path.dirname(file), name)),
  );
  return [...new Set([...libraries, ...resolvers.filter((file) => existsSync(file))])].sort();
}
