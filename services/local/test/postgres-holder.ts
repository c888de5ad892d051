import { startPostgres } from '../src/postgres/postgres';

/** A Node to be killed: it starts Postgres on the directory of its argument and says so in one line of JSON. */
async function hold(dataDir: string): Promise<void> {
  const postgres = await startPostgres({ dataDir, log: { info: () => undefined, warn: () => undefined } });
  const { adopted, port } = postgres;
  process.stdout.write(`${JSON.stringify({ adopted, port, pid: postgres.postmasterPid() })}\n`);
  process.once('SIGTERM', () => void postgres.stop());
}

hold(process.argv[2] ?? '').catch((error: unknown) => {
  process.stdout.write(`${JSON.stringify({ error: (error as Error).message })}\n`);
  process.exitCode = 1;
});
