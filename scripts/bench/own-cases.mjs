import { eventsLines, measureEvents } from './events.mjs';
import { joinsLines, measureJoins } from './joins.mjs';
import { ledgerLines, measureLedger } from './ledger.mjs';
import { measureObjects, objectsLines } from './objects.mjs';
import { measureTracing, tracingLines } from './tracing.mjs';

/** Cases measured in their own processes: `measure(tools, options)`, and `lines` to format its result. */
export const ownCases = {
  events: { measure: measureEvents, lines: eventsLines },
  joins: { measure: measureJoins, lines: joinsLines },
  ledger: { measure: measureLedger, lines: ledgerLines },
  objects: { measure: measureObjects, lines: objectsLines },
  tracing: { measure: measureTracing, lines: tracingLines },
};
