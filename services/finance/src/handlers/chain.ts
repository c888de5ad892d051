import { invalid } from '@granary/shared/errors';
import { addressProblem } from '@granary/shared/money/cosmos/address';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { IncludedTransfer } from '@granary/shared/gen/granary/finance/v1/IncludedTransfer';
import type { Handlers } from '@granary/shared/rpc/types';
import type { Chain, ChainTransfer } from '../chain/chain';
import { orUnavailable } from '../chain/chain-unavailable';

/** Longer than any transaction of one transfer. */
const transactionBytesMax = 4_096;

export interface ChainHandlerOptions {
  chain: Chain;
  prefix: string;
  denom: string;
  /** The address of the hot wallet. */
  address: string;
  memoBytesMax: number;
}

/** The Chain service, for payments: transactions that others have signed. It signs nothing. */
export function chainHandlers(
  options: ChainHandlerOptions,
): Omit<Handlers<ChainDefinition>, 'findGrant' | 'deduct' | 'findDeduction'> {
  const { chain, prefix, denom, address, memoBytesMax } = options;
  return {
    describeChain: () => Promise.resolve({ chainId: chain.id, prefix, denom, address, memoBytesMax }),

    broadcastTransaction: async ({ bytes }) => {
      if (bytes.length > transactionBytesMax) {
        throw invalid('The request is out of bounds', { bytes: [`must be at most ${transactionBytesMax}`] });
      }
      const result = await orUnavailable(chain.broadcast(bytes));
      const refusal = result.state === 'refused' ? result : { code: 0, codespace: '' };
      return { state: states[result.state], code: refusal.code, codespace: refusal.codespace };
    },

    findTransaction: async ({ hash }) => {
      if (!/^[0-9A-F]{64}$/.test(hash)) throw invalid('The request is not valid', { hash: ['must be a SHA-256'] });
      const result = await orUnavailable(chain.find(hash));
      const isIncluded = result.state === 'included';
      const { code, codespace, transfers } = isIncluded ? result : { code: 0, codespace: '', transfers: [] };
      return {
        isIncluded,
        height: result.height.toString(),
        code,
        codespace,
        transfers: code === 0 ? transfers.map(transferMessage) : [],
      };
    },

    getAccount: async ({ address: accountAddress, withBalance }) => {
      const problem = addressProblem(accountAddress, prefix);
      if (problem !== undefined) throw invalid('The request is not valid', { address: [problem] });
      const [account, balance] = await orUnavailable(
        Promise.all([chain.account(accountAddress), withBalance ? chain.balance(accountAddress) : undefined]),
      );
      if (!account) return { exists: false, number: '0', sequence: '0', height: '0' };
      const { number, sequence, height } = account;
      return {
        exists: true,
        number: number.toString(),
        sequence: sequence.toString(),
        height: height.toString(),
        ...(balance !== undefined && { balance: balance.toString() }),
      };
    },
  };
}

const transferMessage = ({ sender, recipient, amount, memo, at: time }: ChainTransfer): IncludedTransfer => ({
  sender,
  recipient,
  amount: amount.toString(),
  memo,
  atMs: time.getTime().toString(),
});

const states = { accepted: 'ACCEPTED', known: 'KNOWN', later: 'LATER', refused: 'REFUSED' } as const;
