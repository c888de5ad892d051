import { databaseServices } from '@granary/local/start/constellation';
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runChild } from '../child.mjs';
import { hostAddress } from './cluster.mjs';

/** Any account that is not root. */
const user = { uid: 65534, gid: 65534 };
const readySteps = 300;
const readyStepMs = 100;

const passwordOf = (name) => `password-of-${name}`;
const storeKeys = { accessKey: 'granary-test', secretKey: 'granary-test-secret' };

/** The Secrets that the chart is given, as `{name: {key: value}}`. */
export const secrets = (seed) => ({
  'granary-postgres': Object.fromEntries(
    databaseServices.flatMap((name) => [name, `${name}-owner`]).map((key) => [key, passwordOf(key)]),
  ),
  'granary-s3': { 'access-key': storeKeys.accessKey, 'secret-key': storeKeys.secretKey },
  'granary-trust': { 'internal-secret': 'internal-secret-of-the-cluster-0123456789' },
  'granary-operator': { 'operator-key': operatorKey },
  'granary-wallet': { seed },
});
export const operatorKey = 'operator-key-of-the-cluster';

/** Postgres and MinIO beside the pods, in the network of the cluster. `stop` ends both. */
export async function startBackends(cluster, { directory, postgres, minio, sqlFile }) {
  const data = path.join(directory, 'postgres');
  const objects = path.join(directory, 'objects');
  for (const folder of [data, objects]) mkdirSync(folder);
  chmodSync(directory, 0o755);
  chownSync(data, user.uid, user.gid);
  const files = path.join(data, 'cluster');
  const initdb = [postgres.initdb, '-D', files, '--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C'];
  const identity = [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups'];
  const made = await runChild('setpriv', [...identity, ...initdb], { cwd: '/' });
  if (made.code !== 0) throw new Error(made.output);
  const flags = {
    listen_addresses: '*',
    unix_socket_directories: data,
    max_connections: '300',
    hba_file: path.join(data, 'hba'),
  };
  const hosts = [`host all postgres ${hostAddress}/32 trust`, 'host all all 10.0.0.0/8 scram-sha-256'];
  writeFileSync(flags.hba_file, `${hosts.join('\n')}\n`);
  const settings = Object.entries(flags).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const children = [
    cluster.start([postgres.postgres, '-D', files, ...settings], { user }),
    cluster.start([minio, 'server', objects, '--address', `${hostAddress}:9000`, '--quiet'], {
      env: { MINIO_ROOT_USER: storeKeys.accessKey, MINIO_ROOT_PASSWORD: storeKeys.secretKey },
    }),
  ];
  await makeDatabases(cluster, sqlFile);
  return {
    stop: () => Promise.all(children.map((child) => endChild(child))),
    sql: (text) => cluster.run('psql', '-X', '-q', '-c', text, superuserUrl),
  };
}

const superuserUrl = `postgres://postgres@${hostAddress}:5432/postgres`;

async function makeDatabases(cluster, sqlFile) {
  const passwords = databaseServices.flatMap((name) => [
    `${name.toUpperCase()}_PASSWORD=${passwordOf(name)}`,
    `${name.toUpperCase()}_OWNER_PASSWORD=${passwordOf(`${name}-owner`)}`,
  ]);
  for (let step = 1; ; step++) {
    try {
      return await cluster.run('env', ...passwords, 'psql', '-X', '-q', '-f', sqlFile, superuserUrl);
    } catch (error) {
      if (step === readySteps) throw error;
      await delay(readyStepMs);
    }
  }
}

async function endChild(child) {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGINT');
  await ended;
}
