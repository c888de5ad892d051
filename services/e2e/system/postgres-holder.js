const path = require('node:path');

/**
 * A Node to be killed: it starts Postgres on the directory of its first argument, by the built code of the checkout in
 * its second one, and says so in one line of JSON.
 */
async function hold(dataDir, checkout) {
  const { startPostgres } = require(path.join(checkout, 'services/local/dist/postgres/postgres.js'));
  const postgres = await startPostgres({ dataDir, log: { info: () => undefined, warn: () => undefined } });
  const { adopted, port } = postgres;
  process.stdout.write(`${JSON.stringify({ adopted, port, pid: postgres.postmasterPid() })}\n`);
  process.once('SIGTERM', () => void postgres.stop());
}

const [, , dataDir, checkout] = process.argv;
hold(dataDir, checkout).catch((error) => {
  process.stdout.write(`${JSON.stringify({ error: error.message })}\n`);
  process.exitCode = 1;
});
