import { broadcastLines, measureBroadcast } from './broadcast';
import { commandLineLines, measureCommandLine } from './command-line';
import { eventsLines, measureEvents } from './events';
import { feedsLines, measureFeeds } from './feeds';
import { growthLines, measureGrowth } from './growth';
import { joinsLines, measureJoins } from './joins';
import { ledgerLines, measureLedger } from './ledger';
import { measureObjects, objectsLines } from './objects';
import { measurePurge, purgeLines } from './purge';
import { measureScan, scanLines } from './scan';
import { measureSearch, searchLines } from './search';
import type { Lengths, Tools } from './tools';
import { measureTransfers, transfersLines } from './transfers';
import { measureVerifications, verificationsLines } from './verifications';
import { measureViews, viewsLines } from './views';
import { measureTracing, tracingLines } from './tracing';

type CaseOptions = Lengths & { documents: number };

/** Measures a case. Returns its result, as it is written as JSON, and as lines. */
type OwnCase = (tools: Tools, options: CaseOptions) => Promise<{ result: object; lines: string[] }>;

const ownCase =
  <Result extends object>(
    measure: (tools: Tools, options: CaseOptions) => Promise<Result>,
    linesOf: (result: Result) => string[],
  ): OwnCase =>
  async (tools, options) => {
    const result = await measure(tools, options);
    return { result, lines: linesOf(result) };
  };

/** Cases measured in their own processes. */
export const ownCases = {
  broadcast: ownCase(measureBroadcast, broadcastLines),
  cli: ownCase(measureCommandLine, commandLineLines),
  events: ownCase(measureEvents, eventsLines),
  feeds: ownCase(measureFeeds, feedsLines),
  growth: ownCase(measureGrowth, growthLines),
  joins: ownCase(measureJoins, joinsLines),
  ledger: ownCase(measureLedger, ledgerLines),
  objects: ownCase(measureObjects, objectsLines),
  purge: ownCase(measurePurge, purgeLines),
  scan: ownCase(measureScan, scanLines),
  search: ownCase(measureSearch, searchLines),
  transfers: ownCase(measureTransfers, transfersLines),
  verifications: ownCase(measureVerifications, verificationsLines),
  views: ownCase(measureViews, viewsLines),
  tracing: ownCase(measureTracing, tracingLines),
};

export type OwnCaseName = keyof typeof ownCases;
