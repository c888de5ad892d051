import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from './child.mjs';
import { messageOf } from './errors.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const shared = path.join(root, 'services/shared');

/** A file without services is generated with those that import it. @param {string} proto */
const hasService = (proto) => /^service /m.test(readFileSync(path.join(root, 'protos', proto), 'utf8'));

/**
 * Generates the types of the protos, if these have changed. Only those who judge types need them: the programs do not.
 */
export async function generateTypes() {
  const protos = readdirSync(path.join(root, 'protos'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.proto'))
    .map((file) => file.replaceAll(path.sep, '/'))
    .sort();
  const loader = path.join(root, 'node_modules/@grpc/proto-loader');
  // The services load the protos with the same options, so that types and messages agree.
  const optionsFile = path.join(shared, 'src/rpc/load-options.json');
  const hash = createHash('sha256').update(readFileSync(fileURLToPath(import.meta.url)));
  for (const file of [
    ...protos.map((proto) => path.join(root, 'protos', proto)),
    optionsFile,
    `${loader}/package.json`,
  ]) {
    hash.update(`${path.relative(root, file)}\n`).update(readFileSync(file));
  }
  const digest = hash.digest('hex');
  const generated = path.join(shared, 'src/gen');
  const stamp = path.join(generated, '.stamp');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) return;

  const flags = Object.entries(JSON.parse(readFileSync(optionsFile, 'utf8'))).map(([name, value]) =>
    typeof value === 'boolean' ? `--${value ? '' : 'no-'}${name}` : `--${name}=${value}`,
  );
  const staging = path.join(shared, `gen.${process.pid}.tmp`);
  try {
    mkdirSync(staging);
    const { code, output } = await runChild(
      process.execPath,
      [
        path.join(loader, 'build/bin/proto-loader-gen-types.js'),
        ...flags,
        '--grpcLib=@grpc/grpc-js',
        '--inputTemplate=%sInput',
        '--outputTemplate=%s',
        '--includeDirs=protos',
        `--outDir=${staging}`,
        ...protos.filter(hasService),
      ],
      { cwd: root },
    );
    if (code !== 0 || readdirSync(staging).length === 0) throw new Error(`the protos have errors:\n${output.trim()}`);
    writeFileSync(path.join(staging, '.stamp'), digest);
    rmSync(generated, { recursive: true, force: true });
    renameSync(staging, generated);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/**
 * Judges the types of all services and tests, of the published packages, and of the scripts that run before a build and
 * are JavaScript for that reason. Throws an error with what the compiler found in all of them.
 */
async function checkTypes() {
  await generateTypes();
  const compiler = path.join(root, 'node_modules/typescript/bin/tsc');
  const problems = [];
  for (const folder of ['services', 'services/client', 'services/cli', 'scripts']) {
    const { code, output } = await runChild(process.execPath, [compiler, '-p', folder, '--noEmit'], { cwd: root });
    if (code !== 0) problems.push(output.trim());
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await checkTypes();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
