import { createLogger } from '@granary/shared/logger';
import type { ChainAccount } from '@granary/shared/gen/granary/finance/v1/ChainAccount';
import { CosmosSettlement, type ChainClient } from '@granary/payments/schemes/cosmos/network';
import type { GrantPayments } from '@granary/payments/schemes/cosmos/grant-payments';
import type { SentTransactions } from '@granary/payments/schemes/cosmos/sent-transactions';

const account: ChainAccount = { exists: true, number: '1', sequence: '6', height: '100' };
const proof = { bytes: '', sender: 'celestia1from', sequence: '5', timeoutHeight: '0' };

/** Settles on a chain that has these calls only, neither grants nor transactions that payers have sent. */
function settlementOn(calls: object): CosmosSettlement {
  const unused = {} as SentTransactions & GrantPayments;
  return new CosmosSettlement(
    'cosmos:test-1',
    () => calls as ChainClient,
    () => new Date(),
    unused,
    unused,
  );
}

/** A chain on which the sequence of the payment is used, whose nodes do not have its transaction at these heights. */
function absentAt(...heights: string[]) {
  const looks = heights.values();
  const network = settlementOn({
    findTransaction: () =>
      Promise.resolve({ isIncluded: false, height: looks.next().value!, code: 0, codespace: '', transfers: [] }),
    getAccount: () => Promise.resolve(account),
  });
  return async () => {
    const payment = { payer: proof.sender, proof, validUntil: new Date() };
    return (await network.find(payment, { bytes: Buffer.alloc(0), hash: 'AB' })).state;
  };
}

test('a transaction whose sequence is used is given up only after nodes had 20 blocks to index it', async () => {
  const find = absentAt('100', '119', '120');
  expect([await find(), await find(), await find()]).toEqual(['absent', 'absent', 'impossible']);
});

test('an absence that too few nodes have found does not count', async () => {
  const find = absentAt('0', '100', '0', '119', '120');
  const states = [await find(), await find(), await find(), await find(), await find()];
  expect(states).toEqual(['absent', 'absent', 'absent', 'absent', 'impossible']);
});

test('the network is closed once no node could be asked twice in a row, and opens again', async () => {
  let answers = true;
  const getAccount = () => (answers ? Promise.resolve(account) : Promise.reject(new Error('no node')));
  const network = settlementOn({ getAccount });
  const states: boolean[] = [network.isOpen()];
  for (answers of [false, true, false, false, false, true]) {
    await network.watch(proof.sender, createLogger('test', 'silent'));
    states.push(network.isOpen());
  }
  expect(states).toEqual([true, true, true, true, false, false, true]);
});

/**
 * A node that answers broadcasts by these codes, 0: it accepts it; the account is as far as the payment, and no block
 * has it.
 */
function nodeThatAnswers(...codes: number[]) {
  const [answers, state] = [codes.values(), { height: 100n }];
  const network = settlementOn({
    broadcastTransaction: () => {
      const { value: code = 0 } = answers.next();
      return Promise.resolve({ state: code === 0 ? 'ACCEPTED' : 'REFUSED', code, codespace: 'sdk' });
    },
    findTransaction: () =>
      Promise.resolve({ isIncluded: false, height: String(state.height), code: 0, codespace: '', transfers: [] }),
    getAccount: () => Promise.resolve({ ...account, sequence: '5' }),
  });
  const payment = { payer: proof.sender, proof, validUntil: new Date() };
  const transaction = { bytes: Buffer.alloc(0), hash: 'AB' };
  /** Sends it and looks for it when the chain has that height. */
  const step = async (height: bigint, isFirst = false) => {
    state.height = height;
    const sent = await network.send(payment, transaction, isFirst);
    return [sent.state, (await network.find(payment, transaction)).state];
  };
  return { step, find: () => network.find(payment, transaction) };
}

test('a refusal of what was never sent before is definite', async () => {
  const { step } = nodeThatAnswers(5);
  expect(await step(100n, true)).toEqual(['refused', 'absent']);
});

test('a transaction that arrives before the one with the sequence before it is sent once a node has that', async () => {
  const { step } = nodeThatAnswers(32, 32, 0);
  expect(await step(100n, true)).toEqual(['sent', 'absent']);
});

test('a transaction whose sequence stays ahead of the account is refused', async () => {
  const { step } = nodeThatAnswers(...Array<number>(1_000).fill(32));
  expect(await step(100n, true)).toEqual(['refused', 'absent']);
});

test('a transaction that may have been sent is given up only after it was refused and absent for 100 blocks', async () => {
  const { step, find } = nodeThatAnswers(0, 32, 5, 0, 5, 5, 5);
  const waits = ['sent', 'absent'];
  expect(await step(100n, true)).toEqual(waits);
  expect([await step(101n), await step(200n)]).toEqual([waits, waits]);
  // A node has it again.
  expect(await step(300n)).toEqual(waits);
  expect([await step(301n), await step(400n)]).toEqual([waits, waits]);
  expect(await step(401n)).toEqual(['sent', 'impossible']);
  expect(await find()).toMatchObject({ reason: 'insufficient_funds' });
});
