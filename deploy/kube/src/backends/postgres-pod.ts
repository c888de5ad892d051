import type { Binaries } from '@granary/local/postgres/binaries';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import type { Resource } from '../cluster/kubernetes';
import { copyLibraries, copyProgram, libraryPath, loadImage } from '../images/program-image';
import { findProgram } from '../images/tools-image';
import { runSql, type Database } from './postgres';
import { secret, statefulSet } from './stateful-set';

export const databaseHost = 'database';
const password = 'password-of-the-superuser';
const folder = '/usr/lib/postgres';
const settingsFolder = '/etc/postgres';
const files = '/data/postgres';
const hba = ['local all all trust', 'host all all 0.0.0.0/0 scram-sha-256'];

/** Loads an image of the Postgres of `programs`, which are linked with the libraries beside them. */
export async function loadPostgres(
  cluster: Cluster,
  { programs, directory }: { programs: Binaries; directory: string },
): Promise<void> {
  const home = path.dirname(path.dirname(programs.postgres));
  const fill = async (layer: string): Promise<void> => {
    cpSync(home, path.join(layer, folder), {
      recursive: true,
      verbatimSymlinks: true,
      filter: (file) => !file.endsWith('.a'),
    });
    for (const name of ['initdb', 'postgres']) await copyLibraries(layer, path.join(home, 'bin', name), home);
    // initdb runs postgres through this shell.
    await copyProgram(layer, 'sh', await findProgram('sh'));
    symlinkSync('usr/bin', path.join(layer, 'bin'));
    mkdirSync(path.join(layer, 'etc'));
    writeFileSync(path.join(layer, 'etc/passwd'), 'postgres:x:65532:65532::/:/bin/sh\n');
  };
  const config = { Entrypoint: [`${folder}/bin/postgres`], Env: ['PATH=/usr/bin', libraryPath] };
  await loadImage(cluster, { name: 'postgres', config, directory, fill });
}

export function postgresResources(): Resource[] {
  const common = {
    image: 'registry.local/postgres:1',
    volumeMounts: [{ name: 'settings', mountPath: settingsFolder }],
  };
  const initdb = [
    `${folder}/bin/initdb`,
    '-D',
    files,
    '--username=postgres',
    '--encoding=UTF8',
    '--locale=C',
    `--pwfile=${settingsFolder}/password`,
  ];
  const settings = { hba_file: `${settingsFolder}/hba`, listen_addresses: '*', unix_socket_directories: '/tmp' };
  const flags = Object.entries({ ...settings, max_connections: '300' }).map(([name, value]) => `--${name}=${value}`);
  return [
    secret('postgres-settings', { hba: `${hba.join('\n')}\n`, password }),
    ...statefulSet(databaseHost, {
      port: 5432,
      before: [
        { name: 'initdb', command: ['sh', '-c', `[ -e ${files}/PG_VERSION ] || ${initdb.join(' ')}`], ...common },
      ],
      container: {
        name: 'postgres',
        args: ['-D', files, ...flags],
        ...common,
        readinessProbe: { tcpSocket: { port: 5432 } },
      },
      volumes: [{ name: 'settings', secret: { secretName: 'postgres-settings' } }],
    }),
  ];
}

/** Returns the Postgres for the proofs, once its pod runs. */
export async function findPostgresPod(cluster: Cluster): Promise<Database> {
  const address = await cluster.kubectl('get', 'service', databaseHost, '--output', 'jsonpath={.spec.clusterIP}');
  const url = `postgres://postgres:${password}@${address}:5432`;
  return { url, sql: (text, database) => runSql({ cluster, url }, text, database) };
}
