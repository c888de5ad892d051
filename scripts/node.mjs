import { fileURLToPath } from 'node:url';
import { messageOf } from './errors.mjs';
import { fileOfPackage } from './npm-package.mjs';

/** @typedef {Partial<Record<NodeJS.Architecture, string>>} Digests Of the packages of npm that contain Node. */

/** @type {Record<string, Digests>} */
const releases = {
  '20.20.2': {
    x64: 'sha512-PeHQM8wAdmHtZA1mBocygZxs5LiUWtsJezQTkBd0iY987KpGrD1O2tVEydvMZiuXceRanxt7rjTnDEBwOPujoQ==',
    arm64: 'sha512-LCXJnNTFiyGuYBw2gZSI5OBFMbkjAPt8sqD/NKrWoE2QmDgSubTqFng6GaNJ9EJ8HpxBMGcWWpbbcs4Vo+CnGg==',
  },
  '22.23.5': {
    x64: 'sha512-3jhC+wcoWxKZxcRqF2sUSl0c9HEXFnur/nuIPx6O6CWKV0jOUWQm7Htw5SuXqqlMCEhi0cJqybFPEb5hhcBiMw==',
    arm64: 'sha512-e1LOUGKVruPGuLVutn8+Cgm5pI1APm4Kvh+zbb/qe/ZpD9s+TQby5iUgZOWmPpbSKpj0Td8DP1N0NEnXasHizg==',
  },
  '24.21.0': {
    x64: 'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
    arm64: 'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
  },
};

/** The Node of the image. */
export const imageVersion = '24.21.0';

/**
 * The program of an official release of Node, from the cache or from npm; its package is compared with its digest.
 * Throws an error where there is none for this machine. Needs a built checkout.
 * @param {string} version
 */
export async function installNode(version) {
  const { arch } = process;
  const integrity = releases[version]?.[arch];
  if (process.platform !== 'linux' || integrity === undefined)
    throw new Error(`There is no Node ${version} for ${arch}`);
  return fileOfPackage({ name: `node-linux-${arch}`, version, integrity }, 'bin/node');
}

/**
 * Installs each release on which the client library is tested. Returns their programs by their versions: on other
 * systems than Linux that of this process alone.
 * @returns {Promise<Record<string, string>>}
 */
export async function installAllNodes() {
  if (process.platform !== 'linux') return { [process.versions.node]: process.execPath };
  const programs = [];
  for (const version of Object.keys(releases)) programs.push([version, await installNode(version)]);
  return Object.fromEntries(programs);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(JSON.stringify(await installAllNodes()));
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
