import { setTimeout as delay } from 'node:timers/promises';
import {
  discardRefused,
  listParkedKeys,
  listRefused,
  requestReplay,
  skipFirst,
  type DeadLetterFilter,
  type ParkedKey,
} from '@granary/shared/bus/dead-letter-requests';
import type { Pool } from '@granary/shared/postgres/pool';
import { defineCommand } from '../program/command';
import type { Say } from '../program/progress';
import { withToolPool } from '../program/tool-pool';

const usage = `Events that a consumer could not apply, with those of the same key that wait behind them, and messages that it
refused because their publisher has not signed them.

  npm run dead-letters -- list    [--consumer name] [--key key]
  npm run dead-letters -- replay  [--consumer name] [--key key]
  npm run dead-letters -- skip     --consumer name   --key key
  npm run dead-letters -- discard [--consumer name]

DATABASE_URL is that of the service which consumes (blobs, finance or tasks); its password may be in DATABASE_PASSWORD_FILE.
\`replay\` asks the running service to apply them again, in order, and says what came of it: mend what was wrong first. A key
that still fails stays parked. \`skip\` gives up the first event of a key for good, without any effect, and replays those
behind it. \`discard\` forgets what was refused; nothing waits behind that.
`;

const answerTimeoutMs = 60_000;
const pollMs = 200;

type Action = (pool: Pool, filter: DeadLetterFilter, say: Say) => Promise<0 | 1>;

const actions: Readonly<Record<string, Action>> = { list, replay, skip, discard };

export const deadLetters = defineCommand({
  usage,
  options: { consumer: { type: 'string' }, key: { type: 'string' } },
  positionalsMax: 1,
  run: (filter, [name = ''], { environment, say }) => {
    const action = Object.hasOwn(actions, name) ? actions[name] : undefined;
    if (action === undefined) throw new Error(usage);
    return withToolPool(environment, { name: 'dead-letters', size: 1, usage }, (pool) => action(pool, filter, say));
  },
});

async function list(pool: Pool, filter: DeadLetterFilter, say: Say): Promise<0> {
  sayParked(await listParkedKeys(pool, filter), say);
  const refused = await listRefused(pool, filter);
  for (const { consumer, source, why, about, since } of refused)
    say(`${consumer} refused ${source} at ${since}: ${why}: ${about}`);
  if (refused.length > 0) say(`${refused.length} messages were refused (at most 100 are shown)`);
  return 0;
}

/** Says one line per key, and the sum. */
function sayParked(parked: readonly ParkedKey[], say: Say): void {
  for (const { consumer, key, events, since, type, error, attempts } of parked)
    say(`${consumer} ${key}: ${events} events since ${since}, first ${type}, tried ${attempts} times: ${error}`);
  const events = parked.reduce((sum, each) => sum + each.events, 0);
  say(`${events} events of ${parked.length} keys are dead-lettered`);
}

async function replay(pool: Pool, filter: DeadLetterFilter, say: Say): Promise<0 | 1> {
  say(`${await requestReplay(pool, filter)} events will be applied again …`);
  const deadlineMs = Date.now() + answerTimeoutMs;
  for (;;) {
    const parked = await listParkedKeys(pool, filter);
    const waiting = parked.filter((each) => each.replayRequested);
    if (waiting.length === 0) {
      sayParked(parked, say);
      return parked.length > 0 ? 1 : 0;
    }
    if (Date.now() > deadlineMs)
      throw new Error(`${waiting.length} keys are still pending: a running service replays them later`);
    await delay(pollMs);
  }
}

async function skip(pool: Pool, { consumer, key }: DeadLetterFilter, say: Say): Promise<0 | 1> {
  if (!consumer || !key) throw new Error(`--consumer and --key are required.\n\n${usage}`);
  const skipped = await skipFirst(pool, { consumer, key });
  if (!skipped) throw new Error(`${consumer} has no dead-lettered events under ${key}.`);
  say(`Skipped ${skipped.type} ${skipped.eventId}.`);
  return replay(pool, { consumer, key }, say);
}

async function discard(pool: Pool, filter: DeadLetterFilter, say: Say): Promise<0> {
  say(`${await discardRefused(pool, filter)} messages are deleted`);
  return 0;
}
