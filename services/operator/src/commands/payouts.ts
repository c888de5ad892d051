import { listStranded, setLastDestination } from '@granary/finance/closing/stranded-wallets';
import { listStoppedAutoPayouts } from '@granary/finance/payouts/auto-stops';
import { listHeld, listStopped, releaseHeld, resumeSenders } from '@granary/finance/payouts/held-transactions';
import type { Pool } from '@granary/shared/postgres/pool';
import { defineCommand } from '../program/command';
import type { Say } from '../program/progress';
import { withToolPool } from '../program/tool-pool';

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

export const payouts = defineCommand({
  usage,
  options: {
    release: { type: 'string' },
    resume: { type: 'boolean' },
    app: { type: 'string' },
    to: { type: 'string' },
  },
  run: async ({ release, resume, app, to }, _positionals, { environment, say }) => {
    if ((app === undefined) !== (to === undefined)) throw new Error('--app and --to belong together');
    await withToolPool(environment, { name: 'payouts', size: 2, usage }, async (pool) => {
      if (release !== undefined) await releaseHeld(pool, release);
      if (resume) say(`${await resumeSenders(pool)} senders are resumed.`);
      if (app !== undefined && to !== undefined) await setLastDestination(pool, app, to);
      await show(pool, say);
    });
  },
});

async function show(pool: Pool, say: Say): Promise<void> {
  const [held, stopped, stranded] = [await listHeld(pool), await listStopped(pool), await listStranded(pool)];
  for (const { hash, kind, count, amount, error, timeoutHeight, absentHeight } of held) {
    const absence = absentHeight === null ? '' : `, not found at height ${absentHeight}`;
    const contents = `${count} ${kind ?? 'payouts'}, ${amount} utia`;
    say(`held ${hash}: ${contents}, timeout height ${timeoutHeight}${absence}: ${error}`);
  }
  for (const { address, reason } of stopped) say(`stopped ${address}: ${reason}`);
  for (const { appId, destination } of await listStoppedAutoPayouts(pool))
    say(`automatic payouts of ${appId} are stopped: the chain refuses ${destination}`);
  for (const { appId, amount, destination } of stranded) {
    const reason = destination ? `refused by the chain at ${destination}` : 'without a destination';
    say(`deleted application ${appId}: ${amount} utia, ${reason}`);
  }
  say(
    `${held.length} transactions are held, ${stopped.length} senders are stopped, ` +
      `${stranded.length} deleted applications have money without a destination.`,
  );
}
