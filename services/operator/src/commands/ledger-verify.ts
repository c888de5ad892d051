import { resumePayouts, verifyLedger } from '@granary/finance/reconciliation/verify-ledger';
import { defineCommand } from '../program/command';
import { withToolPool } from '../program/tool-pool';

const usage = `Derives the balance of every account of the ledger from its entries, and compares it with the counters of the account,
with the open holds and with the payouts that are under way. It may run beside the service, and changes nothing.

  npm run ledger:verify
  npm run ledger:verify -- --resume

DATABASE_URL is that of the finance service; its password may be in DATABASE_PASSWORD_FILE. With \`--resume\`, payouts that
reconciliation has paused are resumed, if there is no difference any more: correct what was wrong first. Ends with 1 if there
is a difference.
`;

export const ledgerVerify = defineCommand({
  usage,
  options: { resume: { type: 'boolean' } },
  run: ({ resume }, _positionals, { environment, say }) =>
    withToolPool(environment, { name: 'ledger-verify', size: 2, usage }, async (pool) => {
      const verified = await verifyLedger(pool, say);
      const { accounts, differences } = verified;
      for (const { kind, subject, expected, found: counted } of differences)
        say(`${kind} ${subject}: ${expected} is expected, ${counted} was found`);
      say(`${accounts} accounts, ${differences.length} differences`);
      if (resume) {
        const resolved = await resumePayouts(pool, verified);
        say(differences.length > 0 ? 'Payouts stay paused.' : `${resolved} differences are resolved, payouts go on.`);
      }
      return differences.length > 0 ? 1 : 0;
    }),
});
