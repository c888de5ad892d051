import { eventsLines, measureEvents } from './events.mjs';
import { growthLines, measureGrowth } from './growth.mjs';
import { joinsLines, measureJoins } from './joins.mjs';
import { ledgerLines, measureLedger } from './ledger.mjs';
import { measureObjects, objectsLines } from './objects.mjs';
import { measurePurge, purgeLines } from './purge.mjs';
import { measureScan, scanLines } from './scan.mjs';
import { measureSearch, searchLines } from './search.mjs';
import { measureVerifications, verificationsLines } from './verifications.mjs';
import { measureViews, viewsLines } from './views.mjs';
import { measureTracing, tracingLines } from './tracing.mjs';

/** Cases measured in their own processes: `measure(tools, options)`, and `lines` to format its result. */
export const ownCases = {
  events: { measure: measureEvents, lines: eventsLines },
  growth: { measure: measureGrowth, lines: growthLines },
  joins: { measure: measureJoins, lines: joinsLines },
  ledger: { measure: measureLedger, lines: ledgerLines },
  objects: { measure: measureObjects, lines: objectsLines },
  purge: { measure: measurePurge, lines: purgeLines },
  scan: { measure: measureScan, lines: scanLines },
  search: { measure: measureSearch, lines: searchLines },
  verifications: { measure: measureVerifications, lines: verificationsLines },
  views: { measure: measureViews, lines: viewsLines },
  tracing: { measure: measureTracing, lines: tracingLines },
};
