import { createHash } from 'node:crypto';

/**
 * @import { LockedPackage, LockedPackages } from '../install.mjs'
 * @typedef {{ name: string, version: string | undefined, license?: string | undefined, purl: string }} Piece A package,
 * or something else that is in the image.
 */

/**
 * The software bill of materials of something that is installed in the format SPDX 2.3: no time and no random name, so
 * the same packages give the same text. `packages` is npm's record of the packages in it, without those of workspaces;
 * `others` is what else is in it. Each artefact of a release has a list of its own, because each is installed without
 * the others: a scanner that reads the list of the command line shall not report what only the image has.
 * @param {LockedPackages} packages @param {Piece} artefact @param {Piece[]} others
 */
export function listPackages(packages, artefact, others) {
  const installed = Object.entries(packages)
    .filter(
      ([where, { link, version: installedVersion }]) => where.includes('node_modules/') && !link && installedVersion,
    )
    .map(([where, each]) => npmPackage(where.slice(where.lastIndexOf('node_modules/') + 'node_modules/'.length), each));
  const described = describe(artefact);
  const packagesById = new Map([...installed, ...others.map(describe)].map((each) => [each.SPDXID, each]));
  const all = [described, ...[...packagesById.values()].toSorted((a, b) => (a.SPDXID < b.SPDXID ? -1 : 1))];
  const title = `${artefact.name.replace(/^@|\//g, (sign) => (sign === '/' ? '-' : ''))}-${artefact.version}`;
  const digest = createHash('sha256').update(JSON.stringify(all)).digest('hex');
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name: title,
    documentNamespace: `https://spdx.org/spdxdocs/${title}-${digest}`,
    creationInfo: { created: '1970-01-01T00:00:00Z', creators: ['Tool: granary-release'] },
    documentDescribes: [described.SPDXID],
    packages: all,
    relationships: all.slice(1).map(({ SPDXID }) => ({
      spdxElementId: described.SPDXID,
      relationshipType: 'DEPENDS_ON',
      relatedSpdxElement: SPDXID,
    })),
  };
}

/**
 * A package of npm, with or without a scope.
 * @param {{ name: string, version: string | undefined, license?: string | undefined }} manifest
 * @returns {Piece}
 */
export const npmPiece = ({ name, version, license }) => ({
  name,
  version,
  license,
  purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
});

/** @param {string} name @param {LockedPackage} record */
function npmPackage(name, { version, license, integrity }) {
  const [algorithm, digest] = integrity?.split(' ')[0]?.split('-', 2) ?? [];
  return {
    ...describe(npmPiece({ name, version, license })),
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
