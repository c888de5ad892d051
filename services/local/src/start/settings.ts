import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { blobsConfig } from '@granary/blobs/config';
import { dataConfig } from '@granary/data/config';
import { financeConfig } from '@granary/finance/config';
import { gatewayConfig } from '@granary/gateway/config';
import { paymentsConfig } from '@granary/payments/config';
import { readConfig, withoutEmpty, wrongConfig, type Environment } from '@granary/shared/config';
import { misspeltSettings } from '@granary/shared/service/run';
import { trustSettings } from '@granary/shared/trust/settings';
import { tasksConfig } from '@granary/tasks/config';
import type { z } from 'zod';
import { localConfig, stackConfig } from '../config';

/** The settings of each service, see its `config.ts`. Any of them can be set for `npm start` and the stack. */
export const serviceSchemas = {
  payments: paymentsConfig,
  data: dataConfig,
  blobs: blobsConfig,
  finance: financeConfig,
  tasks: tasksConfig,
  gateway: gatewayConfig,
} satisfies Record<string, z.ZodObject>;

/** Settings that a launcher decides: addresses of services, databases and stores, and trust. */
const decidedByBoth = new RegExp(
  `^(${Object.keys(trustSettings).join('|')}|LISTEN|HTTP_LISTEN|DATABASE_URL|DATABASE_PASSWORD_FILE|OPERATOR_KEY_FILE|MIGRATIONS|SKILLS_DIRECTORY|DATABASE_DIRECTORY|OBJECTS_DIR|(ENCRYPTION_)?KEY_FILE(_CREATE)?|ENCRYPTION_(OLD_)?VAULT_[A-Z_]+` +
    '|([A-Z_]+_)?ADDRESS|KAFKA_[A-Z0-9_]+|OBJECT_STORE|S3_[A-Z0-9_]+|AWS_[A-Z_]+)$',
);

/** A way to run all services on one machine. */
export interface Launcher {
  command: string;
  /** The settings of the launcher itself. */
  schema: z.ZodObject;
  /** Settings of services that the launcher decides; the environment cannot override them. */
  decides: (name: string) => boolean;
}

export const startLauncher = {
  command: 'npm start',
  schema: localConfig,
  decides: (name: string) => decidedByBoth.test(name) || /^(BUS|BLOBS_PRESIGNED|BLOBS_DIRECT_READS)$/.test(name),
} satisfies Launcher;

export const stackLauncher = {
  command: 'npm run stack',
  schema: stackConfig,
  decides: (name: string) => decidedByBoth.test(name),
} satisfies Launcher;

/** Names the file .env that the script of a start has read into the environment. */
const envFileVariable = 'GRANARY_ENV_FILE';
/** Scripts in scripts/ read or set these. */
const ofScripts = ['GRANARY_URL', 'GRANARY_APP', 'GRANARY_KEY', envFileVariable];

const namesOfServices = (): Set<string> =>
  new Set(Object.values(serviceSchemas).flatMap((schema) => Object.keys(schema.shape)));

export interface Settings<S extends z.ZodObject> {
  own: Readonly<z.infer<S>>;
  /** Settings of the services, unchanged. */
  services: Record<string, string>;
  /** Warnings about settings without effect. */
  warnings: string[];
}

/** Reads all settings before anything starts. Throws a ConfigError that lists all invalid ones. */
export function readSettings<L extends Launcher>(launcher: L, environment: Environment): Settings<L['schema']> {
  const set = withoutEmpty(environment);
  const launcherShape = launcher.schema.shape;
  const serviceNames = namesOfServices();
  const services = Object.fromEntries(
    Object.entries(set).filter(
      ([name]) => serviceNames.has(name) && !(name in launcherShape) && !launcher.decides(name),
    ),
  );
  const readers = [
    [launcherShape, set] as const,
    ...Object.values(serviceSchemas).map(({ shape }) => [shape, services] as const),
  ];
  const problems = readers.flatMap(([shape, values]) =>
    Object.entries(values).flatMap(([name, value]) => {
      const field = (shape as Partial<Record<string, z.ZodType>>)[name];
      return (field?.safeParse(value).error?.issues ?? []).map(({ message }) => [name, message] as const);
    }),
  );
  if (problems.length > 0) throw wrongConfig(problems, set);
  return { own: readConfig(launcher.schema as L['schema'], set), services, warnings: warningsOf(launcher, set) };
}

function warningsOf({ command, schema, decides }: Launcher, set: Record<string, string>): string[] {
  const settingNames = [...namesOfServices(), ...Object.keys(localConfig.shape), ...Object.keys(stackConfig.shape)];
  const decided = Object.keys(set).filter(
    (name) => settingNames.includes(name) && !(name in schema.shape) && decides(name) && !isOfOthers(name),
  );
  return [
    ...misspeltSettings(Object.keys(set), [...settingNames, ...ofScripts], namesIn(set[envFileVariable])),
    ...decided.map((name) => `${name} has no effect with ${command}, which sets it itself.`),
  ];
}

/** The names that a file of settings has. */
const namesIn = (file: string | undefined): string[] =>
  file === undefined ? [] : Object.keys(parseEnv(readFileSync(file, 'utf8')));

/** Often set in developers' shells for other programs, so a warning would be noise. */
const isOfOthers = (name: string): boolean => /^(DATABASE_URL|LISTEN|AWS_[A-Z_]+)$/.test(name);
