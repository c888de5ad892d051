import { blobsConfig, objectStoreSettings } from '@granary/blobs/config';
import { dataConfig } from '@granary/data/config';
import { financeConfig } from '@granary/finance/config';
import { clientLimitSettings, gatewayConfig } from '@granary/gateway/config';
import { paymentsConfig } from '@granary/payments/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { telemetrySettings } from '@granary/shared/telemetry/settings';
import { trustSettings } from '@granary/shared/trust/settings';
import { tasksConfig } from '@granary/tasks/config';
import type { z } from 'zod';
import { markdownTable, replaceMarked } from '../program/markdown';
import { describeSetting, type SettingRow } from './describe-setting';

type Settings = Readonly<Record<string, z.ZodType>>;

/** The settings without those that another table has, unless a service bounds them in its own way. */
function without(settings: Settings, ...others: readonly Settings[]): Settings {
  const isElsewhere = (name: string) => others.some((other) => other[name] === settings[name]);
  return Object.fromEntries(Object.entries(settings).filter(([name]) => !isElsewhere(name)));
}

const common = without(commonConfig.shape, trustSettings, telemetrySettings);
const beyondCommon = (settings: Settings, ...others: readonly Settings[]) =>
  without(settings, commonConfig.shape, ...others);

/** The tables of settings in docs/operations, by the names in their marks. */
const tables: Readonly<Record<string, Settings>> = {
  common,
  data: beyondCommon(dataConfig.shape),
  blobs: beyondCommon(blobsConfig.shape, objectStoreSettings),
  'object-store': objectStoreSettings,
  finance: beyondCommon(financeConfig.shape),
  payments: beyondCommon(paymentsConfig.shape),
  tasks: beyondCommon(tasksConfig.shape),
  gateway: without(gatewayConfig.shape, trustSettings, telemetrySettings, clientLimitSettings),
  'client-limits': clientLimitSettings,
  trust: trustSettings,
  telemetry: telemetrySettings,
};

export const tableNames: readonly string[] = Object.keys(tables);

const columns = ['Variable', 'Default', 'Values', 'Description'] as const;

function renderTable(rows: readonly SettingRow[]): string {
  const cells = rows.map(({ name, defaultText, values, description }) => [
    `\`${name}\``,
    defaultText,
    values,
    description,
  ]);
  return markdownTable([columns, ...cells]);
}

/** The table of that name. Throws an Error that lists the names for one that is unknown. */
export function settingsTable(name: string): string {
  const settings = tables[name];
  if (settings === undefined)
    throw new Error(`${name} is not a table of settings; there are ${tableNames.join(', ')}.`);
  return renderTable(Object.entries(settings).map(([setting, schema]) => describeSetting(setting, schema)));
}

/** Replaces what stands between the marks `<!-- settings: name -->` and `<!-- end of settings -->` by the tables. */
export const replaceTables = (page: string): string => replaceMarked(page, 'settings', settingsTable);
