import { eventsLines, measureEvents } from './events.mjs';
import { measureObjects, objectsLines } from './objects.mjs';
import { measureTracing, tracingLines } from './tracing.mjs';

/** What is measured in processes of its own: `measure(tools, options)`, and `lines` of what that answered. */
export const ownCases = {
  events: { measure: measureEvents, lines: eventsLines },
  objects: { measure: measureObjects, lines: objectsLines },
  tracing: { measure: measureTracing, lines: tracingLines },
};
