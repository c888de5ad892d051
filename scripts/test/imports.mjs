// @ts-check
import { existsSync, readFileSync } from 'node:fs';
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
