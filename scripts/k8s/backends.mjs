import { databaseServices } from '@granary/local/start/constellation';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { hostAddress } from './cluster.mjs';
import { PostgresServer } from './postgres.mjs';

const addresses = ['10.99.0.2', '10.99.0.3'];
/** The Service by which the pods reach the primary. */
export const postgresService = 'postgres';

const passwordOf = (name) => `password-of-${name}`;
export const storeKeys = { accessKey: 'granary-test', secretKey: 'granary-test-secret' };

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

/** Makes the databases of all services, and their roles with the passwords of the Secret. */
export async function createDatabases(cluster, url, sqlFile) {
  const passwords = databaseServices.flatMap((name) => [
    `${name.toUpperCase()}_PASSWORD=${passwordOf(name)}`,
    `${name.toUpperCase()}_OWNER_PASSWORD=${passwordOf(`${name}-owner`)}`,
  ]);
  await cluster.run('env', ...passwords, 'psql', '-X', '-q', '-f', sqlFile, `${url}/postgres`);
}

/**
 * Postgres and MinIO beside the pods, in the network of the cluster. A standby is started only where failovers are
 * proved.
 */
export class Backends {
  /** `sqlFile` makes the databases and their roles. */
  constructor(cluster, { directory, postgres, minio, sqlFile }) {
    Object.assign(this, { cluster, directory, minio, sqlFile });
    [this.primary, this.other] = addresses.map(
      (address) => new PostgresServer(cluster, { programs: postgres, directory, address }),
    );
  }

  /** Needs the namespace. */
  async start() {
    const objects = path.join(this.directory, 'objects');
    mkdirSync(objects, { recursive: true });
    const command = [this.minio, 'server', objects, '--address', `${hostAddress}:9000`, '--quiet'];
    const env = { MINIO_ROOT_USER: storeKeys.accessKey, MINIO_ROOT_PASSWORD: storeKeys.secretKey };
    this.store = this.cluster.start('minio', command, { env });
    await this.primary.initialize();
    await createDatabases(this.cluster, this.primary.url, this.sqlFile);
    await this.directToPrimary();
  }

  /** Makes the databases anew, empty, while no service uses them. */
  async empty() {
    for (const name of databaseServices) await this.primary.sql(`drop database granary_${name}`);
    await createDatabases(this.cluster, this.primary.url, this.sqlFile);
  }

  /** Lets the Service lead to the primary, as an operator of Postgres does. */
  async directToPrimary() {
    const metadata = { name: postgresService };
    await this.cluster.apply(
      { apiVersion: 'v1', kind: 'Service', metadata, spec: { ports: [{ name: 'postgres', port: 5432 }] } },
      {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { ...metadata, labels: { 'kubernetes.io/service-name': postgresService } },
        addressType: 'IPv4',
        endpoints: [{ addresses: [this.primary.address] }],
        ports: [{ name: 'postgres', port: 5432 }],
      },
    );
  }

  /** Makes the standby the primary, once that has been harmed. */
  async failOver() {
    [this.primary, this.other] = [this.other, this.primary];
    await this.primary.promote();
    await this.directToPrimary();
  }

  /** Makes of the Postgres that is not the primary its standby, with a copy of it. */
  async addStandby() {
    await this.other.stop('SIGKILL');
    await this.other.follow(this.primary);
  }

  async stop() {
    this.store?.kill('SIGKILL');
    await Promise.all([this.primary.stop('SIGKILL'), this.other.stop('SIGKILL')]);
  }
}
