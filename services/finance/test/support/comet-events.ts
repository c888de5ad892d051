import { AuthInfo, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import { feeCollector } from '../../src/chain/module-accounts';

/** A transaction in a block of the simulated chain. */
export interface BlockTransaction {
  hash: string;
  height: bigint;
  /** Its place in the block. */
  index: number;
  code: number;
  /** Absent: it came from the faucet. */
  bytes: Buffer | undefined;
  transfers: ReadonlyArray<{ sender: string; recipient: string; amount: bigint; at: Date }>;
}

const event = (type: string, attributes: Record<string, string>) => ({
  type,
  attributes: Object.entries(attributes).map(([key, value]) => ({ key, value, index: true })),
});

/** The result of a transaction with the events that the bank module of the Cosmos SDK 0.50 writes for it. */
export function blockEvents({ code, bytes, transfers }: BlockTransaction): unknown {
  const sender = transfers[0]?.sender ?? '';
  const fee = bytes ? AuthInfo.decode(TxRaw.decode(bytes).authInfoBytes).fee?.amount[0] : undefined;
  const events: unknown[] = [];
  if (fee) {
    const amount = fee.amount + fee.denom;
    const recipient = feeCollector('celestia');
    events.push(event('coin_spent', { spender: sender, amount }));
    events.push(event('coin_received', { receiver: recipient, amount }));
    events.push(event('transfer', { recipient, sender, amount }));
    events.push(event('tx', { fee: amount, fee_payer: sender }));
  }
  const total = transfers.reduce((sum, { amount }) => sum + amount, 0n);
  if (code === 0) {
    events.push(event('message', { action: '/cosmos.bank.v1beta1.MsgSend', sender, module: 'bank', msg_index: '0' }));
    events.push(event('coin_spent', { spender: sender, amount: `${total}utia`, msg_index: '0' }));
    for (const { recipient, amount } of transfers) {
      const of = { amount: `${amount}utia`, msg_index: '0' };
      events.push(event('coin_received', { receiver: recipient, ...of }));
      // MsgMultiSend names no sender.
      events.push(event('transfer', { recipient, ...(transfers.length === 1 && { sender }), ...of }));
    }
  }
  return {
    code,
    data: null,
    log: '',
    gas_wanted: '100000',
    gas_used: '90000',
    events,
    codespace: code === 0 ? '' : 'sdk',
  };
}
