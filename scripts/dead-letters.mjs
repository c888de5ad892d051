import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';

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

/** One line per key. */
function show(parked) {
  for (const { consumer, key, events, since, type, error, attempts } of parked) {
    console.log(
      `${consumer} ${key}: ${events} events since ${since}, first ${type}, tried ${attempts} times: ${error}`,
    );
  }
  const events = parked.reduce((sum, each) => sum + each.events, 0);
  console.log(`${events} events of ${parked.length} keys are dead-lettered`);
}

function showRefused(refused) {
  if (refused.length === 0) return;
  for (const { consumer, source, why, about, since } of refused)
    console.log(`${consumer} refused ${source} at ${since}: ${why}: ${about}`);
  console.log(`${refused.length} messages were refused (at most 100 are shown)`);
}

async function skip(pool, filter, requests) {
  if (!filter.consumer || !filter.key) throw new Error(`--consumer and --key are required.\n\n${usage}`);
  const skipped = await requests.skipFirst(pool, filter);
  if (!skipped) throw new Error(`${filter.consumer} has no dead-lettered events under ${filter.key}.`);
  console.log(`Skipped ${skipped.type} ${skipped.eventId}.`);
  await replay(pool, filter, requests);
}

async function replay(pool, filter, { requestReplay, listParkedKeys }) {
  console.log(`${await requestReplay(pool, filter)} events will be applied again …`);
  const deadline = Date.now() + answerTimeoutMs;
  for (;;) {
    const parked = await listParkedKeys(pool, filter);
    const waiting = parked.filter((each) => each.replayRequested);
    if (waiting.length === 0) {
      show(parked);
      if (parked.length > 0) process.exitCode = 1;
      return;
    }
    if (Date.now() > deadline)
      throw new Error(`${waiting.length} keys are still pending: a running service replays them later`);
    await delay(200);
  }
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { consumer: { type: 'string' }, key: { type: 'string' }, help: { type: 'boolean', short: 'h' } },
  });
  const { help, ...filter } = values;
  if (help) return void console.log(usage);
  const [command] = positionals;
  if (positionals.length !== 1 || !['list', 'replay', 'skip', 'discard'].includes(command)) throw new Error(usage);
  if (!process.env.DATABASE_URL) throw new Error(`DATABASE_URL is not set.\n\n${usage}`);
  const [requests, { openToolPool }] = await Promise.all([
    import('@granary/shared/bus/dead-letter-requests'),
    import('@granary/shared/service/tool-pool'),
  ]);
  const pool = openToolPool('dead-letters', process.env, 1);
  try {
    if (command === 'list') {
      show(await requests.listParkedKeys(pool, filter));
      showRefused(await requests.listRefused(pool, filter));
    } else if (command === 'skip') await skip(pool, filter, requests);
    else if (command === 'discard') console.log(`${await requests.discardRefused(pool, filter)} messages are deleted`);
    else await replay(pool, filter, requests);
  } finally {
    await pool.end();
  }
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
