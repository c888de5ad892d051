import { eventsLines, measureEvents } from './events.mjs';
import { joinsLines, measureJoins } from './joins.mjs';
import { measureObjects, objectsLines } from './objects.mjs';
import { measureTracing, tracingLines } from './tracing.mjs';

/** Cases measured in their own processes: `measure(tools, options)`, and `lines` to format its result. */
export const ownCases = {
  events: { measure: measureEvents, lines: eventsLines },
  joins: { measure: measureJoins, lines: joinsLines },
  objects: { measure: measureObjects, lines: objectsLines },
  tracing: { measure: measureTracing, lines: tracingLines },
};
