import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { TestKafka, TestMinio, TestStack } from '@granary/testing/stack';
import { prepareChartTools } from '@granary/stack/tools/chart-tools';
import { findMissingParts } from '@granary/stack/install';
import { prepareKafka, startKafka } from '@granary/stack/kafka/broker';
import { prepareMinio, startMinio } from '@granary/stack/minio/server';
import { beginRun } from '@granary/stack/programs/runs';
import { chromium, nginx, prepareDebianProgram } from '@granary/stack/tools/debian-programs';
import { preparePythonTools } from '@granary/stack/tools/python-tools';
import { prepareReleaseBefore } from '@granary/stack/tools/release-before';
import { runTool } from '@granary/stack/tools/tools';
import type { Templates } from './granary-databases';
import { GranaryLenders } from './granary-lenders';

export interface StackServer extends TestStack {
  /** The methods that the suites which are on the stack in each run have not called, see `GranaryLenders.uncalled`. */
  uncalledMethods(): string[];
  stop(): Promise<void>;
}

/** What each part answers with. */
interface Answers {
  kafka: TestKafka;
  minio: TestMinio;
  python: { interpreter: string };
  nginx: { program: string };
  chromium: { program: string };
  helm: { folder: string };
  release: { folder: string };
  build: object;
  templates: Templates;
}

/** What suites ask of the lenders, each with a request of its kind. */
const ofLenders = ['lend', 'takeBack', 'start', 'startGateway', 'restart', 'stop'] as const;

const root = path.join(__dirname, '../../..');
const silent = (): void => undefined;

/**
 * Lends out one Kafka, one MinIO and one Granary of each kind for a whole test run, and builds the services once: it
 * belongs to jest's main process, and the workers ask it over HTTP. Each is made for the first who asks.
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
    nginx: async () => ({ program: await prepareDebianProgram(nginx, silent) }),
    chromium: async () => ({ program: await prepareDebianProgram(chromium, silent) }),
    helm: async () => ({ folder: await prepareChartTools(silent) }),
    release: async () => ({ folder: await prepareReleaseBefore(silent) }),
    build: async () => {
      await runTool(process.execPath, ['scripts/build.mjs'], { cwd: root, signal: undefined });
      return {};
    },
    templates: () => lenders.templates(),
  };
  const isPart = (what: string): what is keyof Answers => what in start;
  const started: Partial<Record<keyof Answers, Promise<Answers[keyof Answers]>>> = {};
  const part = <What extends keyof Answers>(what: What) => (started[what] ??= start[what]()) as Promise<Answers[What]>;
  const lenders = new GranaryLenders({
    run,
    build: () => part('build'),
    kafka: () => part('kafka'),
    minio: () => part('minio'),
  });
  const isOfLenders = (what: string): what is (typeof ofLenders)[number] =>
    (ofLenders as readonly string[]).includes(what);
  const answer = async (what: string, body: string): Promise<unknown> => {
    if (isPart(what)) return part(what);
    if (isOfLenders(what)) return lenders[what](JSON.parse(body) as never);
    throw new Error(`there is no ${what}`);
  };
  // Others on this machine do not know the way.
  const secret = randomBytes(16).toString('hex');
  const server = createServer((request, response) => {
    const [, key, what = ''] = (request.url ?? '').split('/');
    if (key !== secret) return void response.writeHead(404).end();
    // A worker that is busy for seconds would take a connection again that has been closed meanwhile because nobody
    // used it.
    response.setHeader('connection', 'close');
    void text(request)
      .then((body) => answer(what, body))
      .then(
        (result) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(result ?? {})),
        (error: Error) => response.writeHead(500).end(error.message),
      );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/${secret}`,
    missing,
    uncalledMethods: () => lenders.uncalled(),
    stop: async () => {
      await Promise.allSettled(Object.values(started));
      await lenders.end();
      await Promise.all(stops.map((stop) => stop()));
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await run.end();
    },
  };
}
