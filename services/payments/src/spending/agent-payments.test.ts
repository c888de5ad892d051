import type { ApplyRequest } from '@granary/shared/gen/granary/finance/v1/ApplyRequest';
import type { Command } from '@granary/shared/gen/granary/finance/v1/Command';
import { newCall } from '@granary/shared/rpc/types';
import { AgentPayments, type AgentPaymentsOptions } from './agent-payments';

/** A ledger that remembers what it was asked for, and has done it. */
function recordingLedger() {
  const commands: Command[] = [];
  const apply = ({ groups }: ApplyRequest) => {
    commands.push(...groups.flatMap((group) => group.commands));
    const result = { outcome: 'applied' as const, reason: '', amount: '0' };
    return Promise.resolve({ groups: groups.map((group) => ({ results: group.commands.map(() => result) })) });
  };
  return { commands, ledger: () => ({ apply }) as unknown as ReturnType<AgentPaymentsOptions['ledger']> };
}

test('the allowance of a key is credited by the same command in every process, however late', async () => {
  const { commands, ledger } = recordingLedger();
  const data = () => {
    throw new Error('no write is asked about');
  };
  for (const [count, at] of ['2026-01-01T00:00:00Z', '2026-06-01T00:00:00Z'].entries()) {
    const now = () => new Date(at);
    const payments = new AgentPayments({ ledger, data, APP_SHARE_PERCENT: 80, AGENT_RESERVATION_MS: 60_000, now });
    const limits = { spendAllowance: '5000', anyTarget: true, allowedTargetApps: [] };
    for (const paymentId of [`a${count}`, `b${count}`]) {
      const request = { payerAppId: 'buyer', targetAppId: 'films', keyId: 'k1', limits, amountsUtia: ['10'] };
      const times = { paymentId, atMs: String(now().getTime()), lastsMs: 0 };
      await payments.reserve({ ...request, ...times }, newCall('test', 10_000));
    }
  }
  const credits = commands.filter(({ kind }) => kind === 'allowance');
  expect(credits).toHaveLength(2);
  expect(credits[1]).toEqual(credits[0]);
});
