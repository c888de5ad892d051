import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/**
 * @import { LockedPackage, LockedPackages } from '../install.mjs'
 * @typedef {{ name: string, version: string | undefined, license?: string | undefined, purl: string }} Piece A package,
 * or something else that is in the image.
 */

/**
 * The software bill of materials of an installed tree in the format SPDX 2.3, from npm's record of it: no time and no
 * random name, so the same packages give the same text. `others` is what npm has not installed.
 * @param {string} recordFile @param {{ name: string, version: string }} application @param {Piece[]} others
 */
export function listPackages(recordFile, { name, version }, others) {
  /** @type {{ packages: LockedPackages }} */
  const { packages } = JSON.parse(readFileSync(recordFile, 'utf8'));
  const installed = Object.entries(packages)
    .filter(
      ([where, { link, version: installedVersion }]) => where.includes('node_modules/') && !link && installedVersion,
    )
    .map(([where, each]) => npmPackage(where.slice(where.lastIndexOf('node_modules/') + 'node_modules/'.length), each));
  const described = describe({ name, version, license: 'Apache-2.0', purl: `pkg:generic/${name}@${version}` });
  const packagesById = new Map([...installed, ...others.map(describe)].map((each) => [each.SPDXID, each]));
  const all = [described, ...[...packagesById.values()].toSorted((a, b) => (a.SPDXID < b.SPDXID ? -1 : 1))];
  const digest = createHash('sha256').update(JSON.stringify(all)).digest('hex');
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name: `${name}-${version}`,
    documentNamespace: `https://spdx.org/spdxdocs/${name}-${version}-${digest}`,
    creationInfo: { created: '1970-01-01T00:00:00Z', creators: [`Tool: ${name}-image`] },
    documentDescribes: [described.SPDXID],
    packages: all,
    relationships: all.slice(1).map(({ SPDXID }) => ({
      spdxElementId: described.SPDXID,
      relationshipType: 'DEPENDS_ON',
      relatedSpdxElement: SPDXID,
    })),
  };
}

/** @param {string} name @param {LockedPackage} record */
function npmPackage(name, { version, license, integrity }) {
  const [algorithm, digest] = integrity?.split(' ')[0]?.split('-', 2) ?? [];
  return {
    ...describe({ name, version, license, purl: `pkg:npm/${name.replace('@', '%40')}@${version}` }),
    ...(algorithm &&
      digest && {
        checksums: [
          { algorithm: algorithm.toUpperCase(), checksumValue: Buffer.from(digest, 'base64').toString('hex') },
        ],
      }),
  };
}

/** @param {Piece} piece */
const describe = ({ name, version, license = 'NOASSERTION', purl }) => ({
  name,
  versionInfo: version,
  SPDXID: `SPDXRef-${`${name}-${version}`.replace(/[^A-Za-z0-9.]+/g, '-')}`,
  downloadLocation: 'NOASSERTION',
  filesAnalyzed: false,
  licenseConcluded: 'NOASSERTION',
  licenseDeclared: license,
  copyrightText: 'NOASSERTION',
  externalRefs: [{ referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: purl }],
});
