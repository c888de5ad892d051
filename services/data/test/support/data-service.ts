import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { runHandler, type AnyHandler } from '@granary/shared/rpc/call';
import { newCall, type Handlers } from '@granary/shared/rpc/types';
import { limitMs } from '@granary/testing/speed';
import { dataConfig } from '../../src/config';
import { dataDefinition, startData } from '../../src/service';

type Service = Handlers<DataDefinition>;
/** The methods of a running service; they fail as they do for a caller, with a ServiceError. */
export type Methods = { [M in keyof Service]: (request: Parameters<Service[M]>[0]) => ReturnType<Service[M]> };

/** A data service of its own in the process of the test. */
export interface DataService {
  methods: Methods;
  skillsDirectory: string;
  stop(): Promise<void>;
}

export const log = createLogger('data', process.env['TEST_LOG_LEVEL'] ?? 'silent');

/** Starts a data service on a database; `settings` are variables of its environment. */
export async function startDataService(url: string, settings: Record<string, string> = {}): Promise<DataService> {
  const skillsDirectory = await mkdtemp(join(tmpdir(), 'granary-skills-'));
  const config = dataConfig.parse({
    LISTEN: '127.0.0.1:0',
    DATABASE_URL: url,
    LOG_LEVEL: 'silent',
    SKILLS_DIRECTORY: skillsDirectory,
    PUBLIC_URL: 'http://granary.test/',
    ...settings,
  });
  const service = await startData(config, { log, listen: false });
  const found = service.implementations.find(({ definition }) => (definition as unknown) === dataDefinition);
  const methods = Object.fromEntries(
    Object.entries(found!.handlers as unknown as Record<string, AnyHandler>).map(([name, handler]) => [
      name,
      (request: unknown) => runHandler(handler, request, newCall('test', limitMs(60_000)), log, name),
    ]),
  ) as unknown as Methods;
  return {
    methods,
    skillsDirectory,
    stop: async () => {
      await service.stop();
      await rm(skillsDirectory, { recursive: true, force: true });
    },
  };
}

export const noIdempotency = { caller: '', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };

export interface App {
  appId: string;
  number: bigint;
}

export async function newApp({ methods }: Pick<DataService, 'methods'>): Promise<App> {
  const { application } = await methods.createApplication({
    name: 'Test',
    description: '',
    idempotency: noIdempotency,
  });
  return { appId: application!.appId, number: BigInt(application!.number) };
}

/** A request to store documents, given as JSON text or as objects. */
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
