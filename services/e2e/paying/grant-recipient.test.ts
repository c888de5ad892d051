import { openSimulatedNode, type SimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { startStandIns, type StandIn } from '../../finance/test/support/comet-stand-in';
import { financePool } from '../../finance/test/support/harness';
import { manualChain, newAddress } from '../../finance/test/support/payout-copies';
import { send, transports, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { newWallet, signedRequest } from '../support/wallet-signing';

const chainId = 'mocha-5';
const grants = '/api/authz/grants';

describe.each(transports)('the allow list of a grant on the chain (%s)', (transport) => {
  const recipient = newAddress();
  let chainPool: Pool;
  let node: SimulatedNode;
  let nodes: StandIn[];
  let granary: Granary;
  beforeAll(async () => {
    ({ pool: chainPool } = await financePool(4));
    // Finance takes no simulated chain for a real one.
    await execute(
      chainPool,
      sql`insert into simulated_chain (chain_id, height, block_at) values (${chainId}, 1, now())`,
    );
    node = await openSimulatedNode({ pool: chainPool, settings: manualChain });
    nodes = await startStandIns(chainPool, node, 2);
    const chain = { CHAIN: 'cosmos', CHAIN_ID: chainId, CHAIN_RPC_URLS: nodes.map(({ url }) => url).join(',') };
    granary = await startGranary(transport, {
      settings: { finance: chain, payments: { X402_PAY_TO: `cosmos:${chainId}=${recipient}` } },
    });
  });
  afterAll(async () => {
    await granary?.stop();
    await Promise.all((nodes ?? []).map((each) => each.stop()));
    await chainPool?.end();
  });

  test('must have the address of X402_PAY_TO, and need not have that of the hot wallet', async () => {
    const wallet = newWallet();
    const text = JSON.stringify({ limit_utia: 50_000 });
    const startedAtMs = Date.now();
    let made = 0;
    /** Each of another second, for a signature is used once. */
    const create = () => {
      made += 1;
      const headers = signedRequest(wallet, 'POST', grants, text, startedAtMs - 1_000 * made);
      return send<{ code?: string; error: string }>(granary.url, 'POST', grants, { body: Buffer.from(text), headers });
    };
    const missing = await create();
    expect([missing.status, missing.body.code]).toEqual([409, 'GRANT_MISSING']);
    const grantee = / to (celestia1[a-z0-9]+) /.exec(missing.text)![1]!;
    const expiresAt = new Date(startedAtMs + 400 * 86_400_000);
    await retriedTransaction(chainPool, (tx) =>
      node.setGrant(tx, { spendLimit: 100_000n, expiresAt }, wallet.address, grantee),
    );
    for (const { faults } of nodes) faults.allowList = [newAddress()];
    const refused = await create();
    expect([refused.status, refused.body.code]).toEqual([409, 'GRANT_MISSING']);
    expect(refused.text).toContain(`its allow_list lacks ${recipient}`);
    for (const { faults } of nodes) faults.allowList = [recipient];
    expect((await create()).status).toBe(201);
  });
});
