import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { budgets } from './test/order.mjs';
import { readProofs } from './test/verdicts.mjs';

const root = path.dirname(import.meta.dirname);
/** @type {Map<string, string[]>} */
const importsOf = new Map();

/** The folder of the package `@granary/<name>`. @param {string} name */
const folderOf = (name) =>
  (existsSync(path.join(root, 'deploy', name, 'package.json')) ? 'deploy' : 'services') + `/${name}`;

/**
 * The files of this repository that a file imports. @param {string} file its path from the root, as are those returned
 */
function readImports(file) {
  const cachedImports = importsOf.get(file);
  if (cachedImports) return cachedImports;
  const text = /\.(ts|js)$/.test(file) ? readFileSync(path.join(root, file), 'utf8') : '';
  // A type is judged by the compiler alone.
  const loading = text.replace(/^import type [^;]*;/gm, '');
  const imports = [...loading.matchAll(/(?:from|import|require)\s*\(?\s*'(\.|@granary\/)([^']+)'/g)].flatMap(
    ([, start, rest = '']) => {
      const ofPackage = rest.replace(/^(\w+)/, (name) => `${folderOf(name)}/src`);
      const target = start === '.' ? path.join(path.dirname(file), `.${rest}`) : ofPackage;
      const candidates = [`${target}.ts`, target].filter((each) => path.extname(each) !== '');
      return candidates.filter((each) => existsSync(path.join(root, each))).slice(0, 1);
    },
  );
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
  const files = ['services', 'deploy'].flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true }).map((file) => `${folder}/${String(file)}`),
  );
  return files.filter((file) => file.endsWith('.test.ts') && !/\/(dist|node_modules)\//.test(file)).sort();
}

/** The project of jest that runs a suite in one process. @param {string} suite */
export function projectOf(suite) {
  const folder = /^services\/e2e\/([^/]+)\//.exec(suite)?.[1];
  if (folder !== undefined) return ['system', 'chart', 'clients', 'attacks'].includes(folder) ? folder : 'front';
  return suite.includes('/src/') ? 'unit' : 'service';
}

/**
 * What is wrong with the lists that name suites, a sentence each: a suite whose cases are generated is in
 * `services/proofs.json`, so that a counterexample counts as one, what the lists name exists, and the budgets are
 * within theirs.
 */
function checkLists() {
  const proofs = readProofs();
  // By itself or by what lies beside it for tests.
  const isGenerated = (/** @type {string} */ suite) => {
    const reached = reachedFrom(suite, (file) => file === suite || /\/test\/support\/|\/e2e\//.test(file));
    return (
      ['size', 'seeds', 'properties'].some((name) => reached.has(`services/testing/src/${name}.ts`)) &&
      !suite.includes('/testing/')
    );
  };
  const problems = [
    ...listSuites()
      .filter((suite) => isGenerated(suite) && !(suite in proofs))
      .map((suite) => `${suite} generates cases, but services/proofs.json does not name it.`),
    ...[...Object.keys(proofs), ...Object.keys(budgets.suites)]
      .filter((suite) => !existsSync(path.join(root, suite)))
      .map((suite) => `services/proofs.json or services/test-budgets.json names ${suite}, which does not exist.`),
  ];
  const sum = Object.values(budgets.parts).reduce((all, part) => all + part, 0);
  if (sum > budgets.total)
    problems.push(`The parts of services/test-budgets.json are ${sum} core-s, not ${budgets.total}.`);
  return problems;
}

if (process.argv[1] === import.meta.filename) {
  for (const problem of checkLists()) {
    console.log(problem);
    process.exitCode = 1;
  }
}
