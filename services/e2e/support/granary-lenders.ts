import { randomUUID } from 'node:crypto';
import type { Run } from '@granary/stack/programs/runs';
import { databaseServices } from '@granary/local/start/constellation';
import { templateDatabase } from '@granary/testing/database';
import { Lender, type Place } from '@granary/testing/lender';
import { RpcCalls } from '@granary/testing/rpc-calls';
import stackSuites from '../stack-suites.json';
import { cloneDatabases, type DatabaseUrls, type Templates } from './granary-databases';
import { startGranaryHost, type GranaryHost } from './granary-host';
import { startHostedGranary, type Embedded } from './hosted-granary';
import { variants, type GatewaySettings, type Settings, type Transport, type Variant } from './granary-settings';
import type { OwnGranary } from './own-granary';
import { startStackGranary, type StackGranary, type StackParts } from './stack-granary';

type EmbeddedKind = `${Embedded} ${Variant}`;

/** Starting it again costs about as much as it does in this time while nobody has it. */
const idleMs = 30_000;

/** What a suite, by `folder/name`, asks for. */
export interface LendRequest {
  suite: string;
  transport: Transport;
  variant: Variant;
}
export interface StartRequest {
  suite: string;
  transport: Transport;
  settings?: Settings;
  databaseUrls: DatabaseUrls;
}
export interface GatewayRequest {
  suite: string;
  settings: GatewaySettings;
}
interface Instance {
  url: string;
  databaseUrls: DatabaseUrls;
}
interface Id {
  id: string;
}

/** Which parts of the run the lent Granaries take, each made for the first who asks. */
export interface LenderParts {
  run: Run;
  /** Has everything built that runs in processes. */
  build: () => Promise<unknown>;
  kafka: () => Promise<StackParts['kafka']>;
  minio: () => Promise<StackParts['minio']>;
}

/** Makes databases with the schema of each service, which others are copied from. */
async function makeTemplates(host: GranaryHost): Promise<Templates> {
  const made = databaseServices.map(async (service) => {
    const name = await templateDatabase(`template_${service}`, (url) => host.ask('migrate', { service, url }));
    return [service, name] as const;
  });
  return Object.fromEntries(await Promise.all(made)) as Templates;
}

/** The Granaries in one process; all of them run in one, which ends as a whole. */
function openHostPlace(host: GranaryHost, templates: Templates): Place<EmbeddedKind, OwnGranary> {
  let isStopping = false;
  return {
    crashed: new Promise((resolve) => {
      void host.ended.then((sentence) => {
        if (!isStopping) resolve(sentence);
      });
    }),
    start: async (kind) => {
      const [transport, variant] = kind.split(' ') as [Embedded, Variant];
      return startHostedGranary(host, transport, await cloneDatabases(templates), variants[variant], 'lend');
    },
    stop: () => {
      isStopping = true;
      return host.end();
    },
  };
}

/**
 * Lends the Granaries of a run, starts those that suites have for themselves, and counts what methods the stacks call.
 */
export class GranaryLenders {
  private readonly calls = new RpcCalls();
  /** The suites of the list that have had a stack. */
  private readonly counted = new Set<string>();
  /** The Granaries that suites have started for themselves, by their ids. */
  private readonly started = new Map<string, Pick<OwnGranary, 'url' | 'restart' | 'stop'>>();
  /** The process in which all of them run that are no stack. When it has crashed, the next suite gets another one. */
  private host: Promise<GranaryHost> | undefined;
  private readonly embedded = new Lender<EmbeddedKind, OwnGranary>('The lent Granary', idleMs, async () => {
    await this.parts.build();
    const host = startGranaryHost(this.parts.run);
    return openHostPlace(host, await this.templates(host));
  });
  private readonly stacks = new Lender<Variant, StackGranary>('The lent stack', idleMs, () =>
    Promise.resolve(this.openStackPlace()),
  );

  private templatesMade: Promise<Templates> | undefined;

  constructor(private readonly parts: LenderParts) {}

  /** Made once; by this process, or else by one that ends afterwards. */
  templates(host?: GranaryHost): Promise<Templates> {
    return (this.templatesMade ??= host ? makeTemplates(host) : this.makeTemplatesAlone());
  }

  private async makeTemplatesAlone(): Promise<Templates> {
    await this.parts.build();
    const host = startGranaryHost(this.parts.run);
    return makeTemplates(host).finally(() => host.end());
  }

  private openStackPlace(): Place<Variant, StackGranary> {
    let crash: (sentence: string) => void = () => undefined;
    return {
      crashed: new Promise((resolve) => (crash = resolve)),
      start: async (variant) => {
        const stack = await this.startStack(await cloneDatabases(await this.templates()), variants[variant]);
        void stack.crashed.then(crash);
        return stack;
      },
      stop: () => Promise.resolve(),
    };
  }

  async lend({ suite, transport, variant }: LendRequest): Promise<Instance & Id> {
    if (transport === 'stack') this.counted.add(suite);
    const { id, instance } = await (transport === 'stack'
      ? this.stacks.lend(variant, suite)
      : this.embedded.lend(`${transport} ${variant}`, suite));
    return { id, url: instance.url, databaseUrls: instance.databaseUrls };
  }

  takeBack({ id }: Id): void {
    this.embedded.takeBack(id);
    this.stacks.takeBack(id);
  }

  async start(request: StartRequest): Promise<Instance & Id & { metricsAddresses: string[] }> {
    const granary = await this.startFor(request);
    const id = randomUUID();
    this.started.set(id, granary);
    const { url, databaseUrls, metricsAddresses } = granary;
    return { url, databaseUrls, metricsAddresses, id };
  }

  /** Starts a gateway for a suite, before the services of the lent stack, which others have too. */
  async startGateway({ suite, settings }: GatewayRequest): Promise<Instance & Id & { metricsAddresses: string[] }> {
    this.counted.add(suite);
    const { id, instance } = await this.stacks.lend('plain', suite);
    const gateway = await instance.startGateway(settings).catch((error: unknown) => {
      this.stacks.takeBack(id);
      throw error;
    });
    const stop = () => gateway.stop().finally(() => this.stacks.takeBack(id));
    this.started.set(id, { url: gateway.url, restart: () => Promise.reject(new Error('It is shared.')), stop });
    const { url, databaseUrls, metricsAddresses } = gateway;
    return { url, databaseUrls, metricsAddresses, id };
  }

  private async startFor({ suite, transport, settings, databaseUrls }: StartRequest): Promise<OwnGranary> {
    if (transport !== 'stack') return startHostedGranary(await this.openHost(), transport, databaseUrls, settings);
    this.counted.add(suite);
    return this.startStack(databaseUrls, settings, suite);
  }

  private openHost(): Promise<GranaryHost> {
    return (this.host ??= (async () => {
      await this.parts.build();
      const host = startGranaryHost(this.parts.run);
      void host.ended.then(() => (this.host = undefined));
      return host;
    })());
  }

  async restart({ id }: Id): Promise<{ url: string }> {
    const granary = this.started.get(id)!;
    await granary.restart();
    return { url: granary.url };
  }

  async stop({ id }: Id): Promise<void> {
    const granary = this.started.get(id);
    this.started.delete(id);
    await granary?.stop();
  }

  /** Ends everything that has been started. */
  async end(): Promise<void> {
    await Promise.all([
      this.embedded.stop(),
      this.stacks.stop(),
      ...[...this.started.keys()].map((id) => this.stop({ id })),
    ]);
    await (await this.host?.catch(() => undefined))?.end();
  }

  /**
   * The methods of `protos/` that the suites which are always on the stack have not called, if each of them has been
   * there; else none. Suites that are there in turn share the lent one with them, so what these alone call is noticed
   * on another day.
   */
  uncalled(): string[] {
    const isWhole = Object.keys(stackSuites.always).every((suite) => this.counted.has(suite));
    return isWhole ? this.calls.uncalled(stackSuites.methodsElsewhere) : [];
  }

  private async startStack(databaseUrls: DatabaseUrls, settings: Settings = {}, suite?: string): Promise<StackGranary> {
    const [kafka, minio] = await Promise.all([this.parts.kafka(), this.parts.minio(), this.parts.build()]);
    // What is there in turn today is elsewhere tomorrow.
    const isCounted = suite === undefined || suite in stackSuites.always;
    const parts = { run: this.parts.run, kafka, minio };
    return startStackGranary(parts, databaseUrls, settings, async (metricsAddresses) => {
      if (isCounted) await this.calls.collect(metricsAddresses);
    });
  }
}
