import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { newCall, type Handlers } from '@granary/shared/rpc/types';
import { runHandler, type AnyHandler } from '@granary/shared/rpc/call';
import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/shared/testing/database';
import { scaledMs } from '@granary/shared/testing/speed';
import { dataConfig } from '../../src/config';
import { dataDefinition, startData } from '../../src/service';

type Service = Handlers<DataDefinition>;
type Methods = { [M in keyof Service]: (request: Parameters<Service[M]>[0]) => ReturnType<Service[M]> };

export interface Copy {
  methods: Methods;
  stop(): Promise<void>;
}

export const log = createLogger('data', process.env['TEST_LOG_LEVEL'] ?? 'silent');

/** One copy of the data service; its methods fail as they do for a caller, with a ServiceError. */
export async function startCopy(url: string, poolSize = 10): Promise<Copy> {
  const skills = await mkdtemp(join(tmpdir(), 'granary-skills-'));
  const config = dataConfig.parse({
    LISTEN: '127.0.0.1:0',
    DATABASE_URL: url,
    DATABASE_POOL_SIZE: String(poolSize),
    LOG_LEVEL: 'silent',
    SKILLS_DIRECTORY: skills,
    PUBLIC_URL: 'http://granary.test/',
  });
  const service = await startData(config, { log, listen: false });
  const found = service.implementations.find(({ definition }) => (definition as unknown) === dataDefinition);
  const methods = Object.fromEntries(
    Object.entries(found!.handlers as unknown as Record<string, AnyHandler>).map(([name, handler]) => [
      name,
      (request: unknown) => runHandler(handler, request, newCall('test', scaledMs(60_000)), log, name),
    ]),
  ) as unknown as Methods;
  return {
    methods,
    stop: async () => {
      await service.stop();
      await rm(skills, { recursive: true, force: true });
    },
  };
}

export interface TwoCopies {
  url: string;
  /** For the test itself. */
  pool: Pool;
  one: Copy;
  two: Copy;
  stop: () => Promise<void>;
}

/** Two copies of the data service on one new database. */
export async function startTwoCopies(): Promise<TwoCopies> {
  const { url } = await testDatabase();
  const pool = createPool({ url, size: 3, applicationName: 'test', log });
  const one = await startCopy(url);
  const two = await startCopy(url);
  const stop = async () => {
    await one.stop();
    await two.stop();
    await pool.end();
  };
  return { url, pool, one, two, stop };
}

export const noIdempotency = { caller: '', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };

export interface App {
  appId: string;
  number: bigint;
}

export async function newApp({ methods }: Copy): Promise<App> {
  const { application } = await methods.createApplication({
    name: 'Test',
    description: '',
    idempotency: noIdempotency,
  });
  return { appId: application!.appId, number: BigInt(application!.number) };
}

export function storeRequest(app: App, collection: string, data: string | object[], more: object = {}) {
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  return {
    appId: app.appId,
    appNumber: app.number.toString(),
    ticketId: newTicket('c', app.number),
    body: Buffer.from(`{"root":"${app.appId}::${collection}","data":${text}}`),
    idempotency: noIdempotency,
    ...more,
  };
}

export const fields = (rules: object) => JSON.stringify({ fields: rules });
