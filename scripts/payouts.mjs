import { parseArgs } from 'node:util';

const usage = `Shows the transactions of payouts, sweeps and deductions of grants that wait for a person, the senders that are stopped, and
the money of deleted applications that has no destination.

  npm run payouts
  npm run payouts -- --release HASH
  npm run payouts -- --resume
  npm run payouts -- --app APP --to ADDRESS

DATABASE_URL is that of the finance service, which may run; its password may be in DATABASE_PASSWORD_FILE. Look for the hash on
the chain first. If a block has it, the service finds it by itself. If no block has it, and its timeout height has passed,
\`--release\` gives it up: what it pays waits for another transaction. \`--resume\` lets stopped senders sign again, from the
sequence that the chain expects: find out first who else has used the seed. \`--app\` with \`--to\` says where the money of a
deleted application goes; it is paid out soon.
`;

async function main() {
  const options = {
    release: { type: 'string' },
    resume: { type: 'boolean' },
    app: { type: 'string' },
    to: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  };
  const { values } = parseArgs({ options });
  if (values.help) return void console.log(usage);
  if (!process.env.DATABASE_URL) throw new Error(`DATABASE_URL is not set.\n\n${usage}`);
  if ((values.app === undefined) !== (values.to === undefined)) throw new Error('--app and --to belong together');
  const [heldTransactions, { listStoppedAutoPayouts }, strandedWallets, { openToolPool }] = await Promise.all([
    import('@granary/finance/payouts/held-transactions'),
    import('@granary/finance/payouts/auto-stops'),
    import('@granary/finance/closing/stranded-wallets'),
    import('@granary/shared/service/tool-pool'),
  ]);
  const { listHeld, listStopped, releaseHeld, resumeSenders } = heldTransactions;
  const { listStranded, setLastDestination } = strandedWallets;
  const pool = openToolPool('payouts', process.env, 2);
  try {
    if (values.release) await releaseHeld(pool, values.release);
    if (values.resume) console.log(`${await resumeSenders(pool)} senders are resumed.`);
    if (values.app) await setLastDestination(pool, values.app, values.to);
    const [held, stopped, stranded] = [await listHeld(pool), await listStopped(pool), await listStranded(pool)];
    for (const { hash, kind, count, amount, error, timeoutHeight, absentHeight } of held)
      console.log(
        `held ${hash}: ${count} ${kind ?? 'payouts'}, ${amount} utia, timeout height ${timeoutHeight}` +
          `${absentHeight === null ? '' : `, not found at height ${absentHeight}`}: ${error}`,
      );
    for (const { address, reason } of stopped) console.log(`stopped ${address}: ${reason}`);
    for (const { appId, destination } of await listStoppedAutoPayouts(pool))
      console.log(`automatic payouts of ${appId} are stopped: the chain refuses ${destination}`);
    for (const { appId, amount, destination } of stranded)
      console.log(
        `deleted application ${appId}: ${amount} utia, ${destination ? `refused by the chain at ${destination}` : 'without a destination'}`,
      );
    console.log(
      `${held.length} transactions are held, ${stopped.length} senders are stopped, ${stranded.length} deleted applications have money without a destination.`,
    );
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
