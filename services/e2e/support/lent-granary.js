// The process of the Granaries that are lent to suites, or of those that suites have for themselves, see
// granary-host.ts: it runs what was built, does what its parent asks for by messages, and ends when that has ended.
const { startConstellation } = require('@granary/local/start/constellation');
const { createLogger } = require('@granary/shared/logger');
const { createPool } = require('@granary/shared/postgres/pool');
const { migrateSchema } = require('@granary/shared/service/schema');

const log = createLogger('lent', process.env.TEST_LOG_LEVEL ?? 'silent');

/** How each that has a name is started, and what runs of it. */
const named = new Map();

const work = {
  // Those who have it learn that it failed by the end of this process.
  lend: async (options) => {
    const started = await work.start(options);
    named.get(options.name).running.failed.catch((error) => {
      console.error(error);
      process.exit(1);
    });
    return started;
  },
  start: async ({ name, ...options }) => {
    const running = await startConstellation({ ...options, host: '127.0.0.1', port: 0, log });
    named.set(name, { options, running });
    return { url: running.url };
  },
  restart: async ({ name }) => {
    const { options, running } = named.get(name);
    await running.stop();
    return work.start({ ...options, name });
  },
  stop: async ({ name }) => {
    const { running } = named.get(name);
    named.delete(name);
    await running.stop();
  },
  migrate: async ({ service, url }) => {
    const pool = createPool({ url, size: 1, applicationName: 'granary-test-migrate', log });
    await migrateSchema(pool, require(`@granary/${service}/service`)[`${service}Schema`]);
    await pool.end();
  },
};

process.on('message', ({ id, what, options }) => {
  work[what](options).then(
    (result) => process.send({ id, result }),
    (error) => process.send({ id, error: error.stack }),
  );
});
process.on('disconnect', () => process.exit());
