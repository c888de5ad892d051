import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import type { Transaction } from '@granary/shared/gen/granary/finance/v1/Transaction';
import { parseUtia, utiaToNumber } from '@granary/shared/money/amounts';
import { json } from '../http/answer';
import { route } from '../pipeline/route';
import { pageQuery } from '../validation/parameters';
import { timeSchema, utiaSchema } from '../validation/schemas';
import { isWalletAddress } from '../pipeline/wallet-signature';

const transactionSchema = z
  .object({
    transaction_hash: z.string().describe('Hash of the transaction on the chain'),
    user_address: z.string().describe('The user whose grant was used'),
    app_id: z.string().describe('The application'),
    operation_type: z.string().describe('What was paid for'),
    collection: z.string().describe('The collection, view or query'),
    amount: utiaSchema.describe('What was deducted, in utia'),
    status: z.string().describe('`Completed` or `Failed`'),
    block_height: z.int().describe('Height of its block'),
    created_at: timeSchema.describe('When its block was found'),
  })
  .meta({ id: 'Transaction' });

const pageSchema = z.object({
  transactions: z.array(transactionSchema).describe('Newest first'),
  total: z.int().describe('How many there are on all pages'),
  limit: z.int().describe('The limit that was applied'),
  offset: z.int().describe('The offset that was applied'),
});
const examplePage = { transactions: [], total: 0, limit: 100, offset: 0 };

function transactionJson(transaction: Transaction) {
  return {
    transaction_hash: transaction.transactionHash,
    user_address: transaction.userAddress,
    app_id: transaction.appId,
    operation_type: transaction.operationType,
    collection: transaction.collection,
    amount: utiaToNumber(parseUtia(transaction.amount)),
    status: transaction.status,
    block_height: Number(transaction.blockHeight),
    created_at: transaction.createdAt,
  };
}

const tag = 'Authz';

export const authzRoutes = [
  route({
    method: 'GET',
    path: '/authz/transactions/app/{app_id}',
    id: 'listTransactionsOfApplication',
    summary: 'List what was deducted for an application under grants of users',
    description: 'Newest first.',
    tag,
    auth: { kind: 'app', permission: 'Read', operator: true },
    query: pageQuery,
    responses: {
      200: {
        description: 'A page',
        schema: pageSchema.extend({ app_id: z.string().describe('The application') }),
        example: { app_id: 'demo', ...examplePage },
      },
    },
    handle: async ({ clients }, { path, query, caller, call }) => {
      // A key proves that its application exists; for the operator it has to be looked up.
      if (caller.kind === 'operator') await clients.data.getApplication({ appId: path.app_id }, call);
      const request = { userAddress: '', appId: path.app_id, ...query };
      const { transactions, total } = await clients.finance.listTransactions(request, call);
      return json(200, {
        app_id: path.app_id,
        transactions: transactions.map(transactionJson),
        total: Number(total),
        ...query,
      });
    },
  }),
  route({
    method: 'GET',
    path: '/authz/transactions/{user_address}',
    id: 'listTransactionsOfUser',
    summary: 'List what was deducted under the grants of a user',
    description:
      'Newest first. Signed by the wallet of that address: ADR-036 over `METHOD\\npath?query\\nseconds\\nhex SHA-256 of the body`, ' +
      'in X-Wallet-Address, X-Timestamp, X-Signature and X-Pubkey.',
    tag,
    auth: { kind: 'wallet' },
    query: pageQuery,
    responses: {
      200: {
        description: 'A page',
        schema: pageSchema.extend({ user_address: z.string().describe('The user') }),
        example: { user_address: 'celestia1…', ...examplePage },
      },
    },
    handle: async ({ clients }, { path, query, call }) => {
      const address = path.user_address;
      if (!isWalletAddress(address)) {
        throw invalid('The address is not valid', { user_address: ['must be a bech32 address'] });
      }
      const request = { userAddress: address, appId: '', ...query };
      const { transactions, total } = await clients.finance.listTransactions(request, call);
      return json(200, {
        user_address: address,
        transactions: transactions.map(transactionJson),
        total: Number(total),
        ...query,
      });
    },
  }),
];
