import { createHash, createHmac } from 'node:crypto';
import path from 'node:path';
import { Client } from 'pg';
import { StartError } from '@granary/shared/start-error';
import { databaseServices, type DatabaseService } from '@granary/local/start/constellation';
import { keptSecret } from '@granary/local/start/secrets';
import { choosePorts } from '@granary/local/ports';
import type { Backends, BackendsOptions } from './backends';
import { MissingToolError, runTool } from './tools/tools';

const composeFile = path.join(__dirname, '../../compose.yaml');
const minioUser = 'granary';
const kafkaUser = 'granary';

/**
 * Starts the same as `startBackends` in containers, by Docker Compose, with their data in volumes that belong to this
 * data directory. Docker restarts a container that dies, so `onFailure` is not called.
 */
export async function startContainers({ dataDir, bus, store, say, signal }: BackendsOptions): Promise<Backends> {
  // The volumes keep the passwords of their creation, so the passwords are stored too.
  const password = await keptSecret(dataDir, 'containers-password', 'pw_');
  const [postgresPort = 0, kafkaPort = 0, minioPort = 0] = await choosePorts(3);
  const project = `granary-${createHash('sha256').update(dataDir).digest('hex').slice(0, 12)}`;
  const env = {
    ...process.env,
    POSTGRES_PASSWORD: password,
    POSTGRES_PORT: String(postgresPort),
    KAFKA_PORT: String(kafkaPort),
    KAFKA_USERNAME: kafkaUser,
    KAFKA_PASSWORD: password,
    MINIO_ROOT_USER: minioUser,
    MINIO_ROOT_PASSWORD: password,
    MINIO_PORT: String(minioPort),
  };
  const compose = (args: string[], interrupt?: AbortSignal): Promise<string> =>
    runTool('docker', ['compose', '--project-name', project, '--file', composeFile, ...args], {
      cwd: '/',
      env,
      signal: interrupt,
    });
  const services = ['postgres', ...(bus === 'kafka' ? ['kafka'] : []), ...(store === 'minio' ? ['minio'] : [])];
  await checkDocker();
  say(`Starting the containers of ${project} …`);
  const stop = async (): Promise<void> => void (await compose(['stop']));
  try {
    await compose(['up', '--detach', '--wait', ...services], signal);
    return {
      databaseUrls: await createDatabases(postgresPort, password),
      ...(bus === 'kafka'
        ? {
            kafka: { brokers: [`127.0.0.1:${kafkaPort}`], sasl: { mechanism: 'plain', username: kafkaUser, password } },
          }
        : {}),
      ...(store === 'minio'
        ? { objectStore: { endpoint: `http://127.0.0.1:${minioPort}`, accessKey: minioUser, secretKey: password } }
        : {}),
      parts: services.map((name) => ({ name, port: Number(env[`${name.toUpperCase()}_PORT` as keyof typeof env]) })),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function checkDocker(): Promise<void> {
  try {
    await runTool('docker', ['compose', 'version'], { cwd: '/', signal: undefined });
  } catch (error) {
    throw new MissingToolError('Docker is missing or does not respond: --docker needs it with Compose 2.17 or newer.', {
      cause: error,
    });
  }
}

/** Creates the role and the database of each service if they are missing, and returns the URLs. */
async function createDatabases(port: number, password: string): Promise<Record<DatabaseService, string>> {
  const client = new Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', password });
  await client.connect();
  try {
    const urls = {} as Record<DatabaseService, string>;
    for (const service of databaseServices) {
      const name = `granary_${service}`;
      const rolePassword = createHmac('sha256', password).update(name).digest('base64url');
      const role = await client.query('select from pg_roles where rolname = $1', [name]);
      if (role.rowCount === 0) await client.query(`create role ${name} login password '${rolePassword}'`);
      const database = await client.query('select from pg_database where datname = $1', [name]);
      if (database.rowCount === 0) await client.query(`create database ${name} owner ${name} template template0`);
      await client.query(`revoke connect, temporary on database ${name} from public`);
      urls[service] = `postgres://${name}:${rolePassword}@127.0.0.1:${port}/${name}?sslmode=disable`;
    }
    return urls;
  } catch (error) {
    throw new StartError(`The databases could not be created: ${(error as Error).message}`, { cause: error });
  } finally {
    await client.end();
  }
}
