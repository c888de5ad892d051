import { parseArgs } from 'node:util';

const usage = `Derives the balance of every account of the ledger from its entries, and compares it with the counters of the account,
with the open holds and with the payouts that are under way. It may run beside the service, and changes nothing.

  npm run ledger:verify
  npm run ledger:verify -- --resume

DATABASE_URL is that of the finance service; its password may be in DATABASE_PASSWORD_FILE. With \`--resume\`, payouts that
reconciliation has paused are resumed, if there is no difference any more: correct what was wrong first. Ends with 1 if there
is a difference.
`;

async function verify({ resume }) {
  const [{ resumePayouts, verifyLedger }, { openToolPool }] = await Promise.all([
    import('@granary/finance/reconciliation/verify-ledger'),
    import('@granary/shared/service/tool-pool'),
  ]);
  const pool = openToolPool('ledger-verify', process.env, 2);
  try {
    const found = await verifyLedger(pool, console.log);
    for (const { kind, subject, expected, found: counted } of found.differences)
      console.log(`${kind} ${subject}: ${expected} is expected, ${counted} was found`);
    console.log(`${found.accounts} accounts, ${found.differences.length} differences`);
    if (found.differences.length > 0) process.exitCode = 1;
    if (resume) {
      const resolved = await resumePayouts(pool, found);
      console.log(
        found.differences.length > 0 ? 'Payouts stay paused.' : `${resolved} differences are resolved, payouts go on.`,
      );
    }
  } finally {
    await pool.end();
  }
}

async function main() {
  const { values } = parseArgs({ options: { resume: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } });
  if (values.help) return void console.log(usage);
  if (!process.env.DATABASE_URL) throw new Error(`DATABASE_URL is not set.\n\n${usage}`);
  await verify(values);
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
