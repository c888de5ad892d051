// @ts-check
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

const root = path.dirname(path.dirname(import.meta.dirname));
/** @type {Map<string, string[]>} */
const importsOf = new Map();

/** The files of this repository that a file imports. @param {string} file its path from the root, as are those returned */
function readImports(file) {
  const known = importsOf.get(file);
  if (known) return known;
  const text = /\.(ts|js)$/.test(file) ? readFileSync(path.join(root, file), 'utf8') : '';
  const names = [...text.matchAll(/(?:from|import|require)\s*\(?\s*'(\.[^']+|@granary\/[^']+)'/g)].map(
    ([, name = '']) => name,
  );
  const imports = names.flatMap((name) => {
    const target = name.startsWith('.')
      ? path.join(path.dirname(file), name)
      : name.replace(/^@granary\/(\w+)/, 'services/$1/src');
    return [`${target}.ts`, target]
      .filter((each) => path.extname(each) !== '' && existsSync(path.join(root, each)))
      .slice(0, 1);
  });
  importsOf.set(file, imports);
  return imports;
}

/**
 * All files that a suite reaches by imports, itself included.
 * @param {string} suite
 * @param {(file: string) => boolean} [isFollowed] whether the imports of a file count
 */
export function reachedFrom(suite, isFollowed = () => true) {
  const reached = new Set([suite]);
  for (const file of reached) if (isFollowed(file)) for (const each of readImports(file)) reached.add(each);
  return reached;
}

/** All suites, as paths from the root of the repository. */
export function listSuites() {
  const files = readdirSync(path.join(root, 'services'), { recursive: true }).map((file) => `services/${String(file)}`);
  return files.filter((file) => file.endsWith('.test.ts') && !/\/(dist|node_modules)\//.test(file)).sort();
}

/** The project of jest that runs a suite in one process. @param {string} suite */
export function projectOf(suite) {
  const folder = /^services\/e2e\/([^/]+)\//.exec(suite)?.[1];
  if (folder !== undefined) return ['system', 'chart', 'clients', 'attacks'].includes(folder) ? folder : 'front';
  return suite.includes('/src/') ? 'unit' : 'service';
}
