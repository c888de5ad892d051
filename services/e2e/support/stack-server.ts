import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import type { TestKafka, TestMinio, TestStack } from '@granary/testing/stack';
import { prepareChartTools } from '@granary/local/stack/chart-tools';
import { findMissingParts } from '@granary/local/stack/install';
import { prepareKafka, startKafka } from '@granary/local/stack/kafka-broker';
import { prepareMinio, startMinio } from '@granary/local/stack/minio-server';
import { beginRun } from '@granary/local/stack/runs';
import { preparePythonTools } from '@granary/local/stack/python-tools';
import { prepareReleaseBefore } from '@granary/local/stack/release-before';
import { runTool } from '@granary/local/stack/tools';

export interface StackServer extends TestStack {
  stop(): Promise<void>;
}

/** What each path answers with. */
interface Answers {
  kafka: TestKafka;
  minio: TestMinio;
  python: { interpreter: string };
  helm: { folder: string };
  release: { folder: string };
  build: object;
}

const root = path.join(__dirname, '../../..');
const silent = (): void => undefined;

/**
 * Lends out one Kafka and one MinIO for a whole test run, and builds the services once: it belongs to jest's main
 * process, and the workers ask it over HTTP. Each is made for the first who asks.
 */
export async function startStackServer(): Promise<StackServer> {
  const missing = await findMissingParts();
  const run = await beginRun();
  const stops: Array<() => Promise<void>> = [];
  const start: { [What in keyof Answers]: () => Promise<Answers[What]> } = {
    kafka: async () => {
      const installation = await prepareKafka(run, silent);
      const kafka = await startKafka(installation, { run, directory: path.join(run.directory, 'kafka') });
      stops.push(() => kafka.stop());
      return { brokers: kafka.brokers, sasl: { mechanism: 'scram-sha-512', ...kafka.credentials } };
    },
    minio: async () => {
      const program = await prepareMinio(silent);
      const minio = await startMinio(program, { run, directory: path.join(run.directory, 'minio') });
      stops.push(() => minio.stop());
      const { endpoint, accessKey, secretKey } = minio;
      return { endpoint, accessKey, secretKey, program };
    },
    python: async () => ({ interpreter: await preparePythonTools(silent) }),
    helm: async () => ({ folder: await prepareChartTools(silent) }),
    release: async () => ({ folder: await prepareReleaseBefore(silent) }),
    build: async () => {
      await runTool(process.execPath, ['scripts/build.mjs'], { cwd: root, signal: undefined });
      return {};
    },
  };
  const isPart = (what: string): what is keyof Answers => what in start;
  const started: Partial<Record<keyof Answers, Promise<Answers[keyof Answers]>>> = {};
  // Others on this machine do not know the way.
  const secret = randomBytes(16).toString('hex');
  const server = createServer((request, response) => {
    const [, what] = new RegExp(`^/${secret}/(kafka|minio|python|helm|release|build)$`).exec(request.url ?? '') ?? [];
    if (what === undefined || !isPart(what)) return void response.writeHead(404).end();
    (started[what] ??= start[what]()).then(
      (result) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(result)),
      (error: Error) => response.writeHead(500).end(error.message),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/${secret}`,
    missing,
    stop: async () => {
      await Promise.allSettled(Object.values(started));
      await Promise.all(stops.map((stop) => stop()));
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await run.end();
    },
  };
}
