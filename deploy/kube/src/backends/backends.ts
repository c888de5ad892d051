import { databaseServices } from '@granary/local/start/constellation';
import type { Binaries } from '@granary/local/postgres/binaries';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { hostAddress, type Cluster } from '../cluster/cluster';
import { PostgresServer } from './postgres';

const [firstAddress, secondAddress] = ['10.99.0.2', '10.99.0.3'] as const;
/** The Service by which the pods reach the primary. */
export const postgresService = 'postgres';

const passwordOf = (name: string): string => `password-of-${name}`;
export const storeKeys = { accessKey: 'granary-test', secretKey: 'granary-test-secret' };

/** The Secrets that the chart is given, as `{name: {key: value}}`. */
export const secrets = (seed: string): Record<string, Record<string, string>> => ({
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
export async function createDatabases(cluster: Cluster, url: string, sqlFile: string): Promise<void> {
  const passwords = databaseServices.flatMap((name) => [
    `${name.toUpperCase()}_PASSWORD=${passwordOf(name)}`,
    `${name.toUpperCase()}_OWNER_PASSWORD=${passwordOf(`${name}-owner`)}`,
  ]);
  await cluster.run('env', ...passwords, 'psql', '-X', '-q', '-f', sqlFile, `${url}/postgres`);
}

export interface BackendsOptions {
  /** The folder in which those of the backends are made. */
  directory: string;
  /** The programs of Postgres. */
  postgres: Binaries;
  /** The program of MinIO. */
  minio: string;
  /** The file whose statements make the databases and their roles. */
  sqlFile: string;
}

/**
 * Postgres and MinIO beside the pods, in the network of the cluster. A standby is started only where failovers are
 * proved.
 */
export class Backends {
  private readonly cluster: Cluster;
  private readonly directory: string;
  private readonly minio: string;
  private readonly sqlFile: string;
  private primaryServer: PostgresServer;
  private otherServer: PostgresServer;
  private store: ChildProcess | undefined;

  constructor(cluster: Cluster, { directory, postgres, minio, sqlFile }: BackendsOptions) {
    this.cluster = cluster;
    this.directory = directory;
    this.minio = minio;
    this.sqlFile = sqlFile;
    const options = { programs: postgres, directory };
    this.primaryServer = new PostgresServer(cluster, { ...options, address: firstAddress });
    this.otherServer = new PostgresServer(cluster, { ...options, address: secondAddress });
  }

  /** The Postgres that the services use. */
  get primary(): PostgresServer {
    return this.primaryServer;
  }

  /** Starts Postgres and MinIO. The namespace must exist. */
  async start(): Promise<void> {
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
  async empty(): Promise<void> {
    for (const name of databaseServices) await this.primary.sql(`drop database granary_${name}`);
    await createDatabases(this.cluster, this.primary.url, this.sqlFile);
  }

  /** Points the Service to the primary, as an operator of Postgres does. */
  private async directToPrimary(): Promise<void> {
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

  /** Makes the standby the primary, after the old primary has been harmed. */
  async failOver(): Promise<void> {
    [this.primaryServer, this.otherServer] = [this.otherServer, this.primaryServer];
    await this.primary.promote();
    await this.directToPrimary();
  }

  /** Makes the other Postgres a standby of the primary, from a copy of it. */
  async addStandby(): Promise<void> {
    await this.otherServer.stop();
    await this.otherServer.follow(this.primary);
  }

  async stop(): Promise<void> {
    this.store?.kill('SIGKILL');
    await Promise.all([this.primary.stop(), this.otherServer.stop()]);
  }
}
