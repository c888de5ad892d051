import { ServiceError } from '@granary/shared/errors';
import { isTimeout } from '@granary/shared/postgres/errors';
import { rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { describeWithAnvil, usdc } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { offerRead } from '../src/quotes/offers';
import { readPayment, verifyPresented } from '../src/quotes/presented-payment';
import {
  amount,
  anotherPayment,
  cancelCall,
  counted,
  log,
  newCopy,
  newPayment,
  noncesIn,
  openNetwork,
  openPlace,
  refusalOf,
  stateOf,
  tokenCall,
  usesOf,
  verifier,
  type Copy,
  type Payment,
  type Place,
} from './support/evm-payments';

/** The reason with which a payment is refused. */
const reasonOf = async (settling: Promise<unknown>): Promise<unknown> => {
  const error = await settling.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(ServiceError);
  return (error as ServiceError).details['reason'];
};

describeWithAnvil(describe)('settlement on an EVM network', () => {
  let place: Place;
  const copies: Copy[] = [];
  beforeEach(async () => (place = await openPlace()));
  afterEach(async () => {
    await Promise.all(copies.splice(0).map(({ settler }) => settler.stop()));
    await place.stop();
  });

  const open = async (...[network, copy]: [Parameters<typeof openNetwork>[1]?, Parameters<typeof newCopy>[2]?]) => {
    const opened = await openNetwork(place, network);
    const made = newCopy(place, opened, copy);
    copies.push(made);
    return { network: opened, ...made, copy: made };
  };
  const settle = ({ payments }: Copy, { request }: Payment) => payments.settle(request);
  const settledBy = async (copy: Copy, payment: Payment) =>
    eventually(async () => {
      try {
        return (await settle(copy, payment)).payment ?? undefined;
      } catch (error) {
        // Where many are settled at once, some wait too long for a connection of the database.
        if (isTimeout(error)) return undefined;
        throw error;
      }
    });
  const mining = (is: boolean) => place.anvil.call('evm_setAutomine', is);
  const received = () => place.anvil.tokenBalance(place.payTo);
  /** Begins to settle a payment, up to the moment when its transaction is sent and no block has it. */
  const send = async (copy: Copy, payment: Payment) => {
    await mining(false);
    expect((await settle(copy, payment)).payment).toBeUndefined();
    const sent = sql`select 1 from evm_transaction where sent_at is not null`;
    await eventually(async () => (await rows(place.pool, sent)).length === 1);
  };

  test('a payment is settled by one transaction, whose block is told', async () => {
    const { copy } = await open();
    const payment = await newPayment(place, copy);
    const { payment: settled } = await settle(copy, payment);
    const receipt = await place.anvil.call<{ from: string; blockNumber: string; status: string }>(
      'eth_getTransactionReceipt',
      settled!.transaction,
    );
    expect(receipt).toMatchObject({ from: place.key.address, status: '0x1' });
    expect(settled).toMatchObject({
      payer: payment.payer.address,
      blockHeight: BigInt(receipt.blockNumber).toString(),
    });
    expect(await received()).toBe(amount);
    expect(await reasonOf(settle(copy, payment))).toBe('payment_already_used');
  });

  test('two processes settle 40 payments at once: each is settled once, and the nonces have no gap', async () => {
    const both = [(await open()).copy, (await open()).copy];
    const payments: Payment[] = [];
    for (const at of counted(40)) payments.push(await newPayment(place, both[at % 2]!));
    const answers = await Promise.all(
      payments.flatMap((payment) => both.map((copy) => settledBy(copy, payment).catch(() => undefined))),
    );
    expect(answers.filter((settled) => settled)).toHaveLength(payments.length);
    expect(await received()).toBe(amount * 40n);
    expect(await noncesIn(place.pool)).toEqual(counted(40));
    expect(await place.anvil.transactionCount(place.key.address)).toBe(40);
  });

  test('a payment that somebody else has sent is found, and not sent again', async () => {
    const { copy } = await open();
    const payment = await newPayment(place, copy);
    const hash = await place.anvil.transact(await tokenCall('transferWithAuthorization', payment.payload));
    await place.anvil.receipt(hash);
    expect((await settle(copy, payment)).payment?.transaction).toBe(hash);
    expect(await received()).toBe(amount);
    expect(await place.anvil.transactionCount(place.key.address)).toBe(0);
  });

  test('a nonce that was used for another transfer does not hide the one that it was used for', async () => {
    const { copy, network } = await open();
    const { request, payload } = await newPayment(place, copy);
    const settings = { offers: copy.offers, verifier };
    const { verified } = await verifyPresented(settings, request.purchase, readPayment(request.paymentJson));
    await place.anvil.receipt(await place.anvil.transact(await tokenCall('transferWithAuthorization', payload)));
    // From here on the network knows the block.
    await network.watch();
    const found = async (changes: object) => {
      const proof = { ...verified.proof, ...changes };
      const validUntil = new Date(verified.validUntilSeconds * 1_000);
      return (await network.find({ ...verified, proof, validUntil }, { bytes: Buffer.alloc(0), hash: '' })).state;
    };
    expect([await found({ value: '1' }), await found({})]).toEqual(['impossible', 'included']);
  });

  test('a payment that somebody else gets included while its gas is estimated is settled by theirs, once', async () => {
    const { copy } = await open();
    const payment = await newPayment(place, copy);
    let hash: string | undefined;
    place.proxy.before = async (method) => {
      if (method !== 'eth_estimateGas' || hash !== undefined) return;
      hash = await place.anvil.transact(await tokenCall('transferWithAuthorization', payment.payload));
      await place.anvil.receipt(hash);
    };
    expect((await settledBy(copy, payment)).transaction).toBe(hash);
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([amount, 0]);
  });

  test('a payment that somebody else gets included before our transaction is settled by theirs, once', async () => {
    const { copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    const hash = await place.anvil.transactFirst(await tokenCall('transferWithAuthorization', payment.payload));
    await place.anvil.mine();
    expect((await settledBy(copy, payment)).transaction).toBe(hash);
    expect(await received()).toBe(amount);
    // Ours was included and has failed.
    expect(await place.anvil.transactionCount(place.key.address)).toBe(1);
  });

  test('a transfer pays for one authorization only: another one that is used for something else in the same transaction is refused', async () => {
    const { copy } = await open();
    const paid = await newPayment(place, copy);
    const { payer } = paid;
    await place.anvil.mint(payer.address, amount);
    const other = await newPayment(place, copy);
    // The same payer signs a payment, and uses its nonce to give the money to the token itself.
    const { version2 } = await import('@granary/testing/x402-client');
    const second = await version2(payer, other.requirement);
    const { nonce } = second.payload.authorization;
    const message = { ...second.payload.authorization, to: usdc };
    const fields = [
      'from:address',
      'to:address',
      'value:uint256',
      'validAfter:uint256',
      'validBefore:uint256',
      'nonce:bytes32',
    ];
    const signature = await payer.signTypedData({
      domain: { name: 'USDC', version: '2', chainId: 84_532, verifyingContract: usdc },
      types: {
        ReceiveWithAuthorization: fields.map((field) => ({ name: field.split(':')[0]!, type: field.split(':')[1]! })),
      },
      primaryType: 'ReceiveWithAuthorization',
      message,
    });
    const { encodeFunctionData, parseAbi } = await import('viem');
    const calls = [
      await tokenCall('receiveWithAuthorization', { authorization: message, signature }),
      await tokenCall('transferWithAuthorization', paid.payload),
    ];
    const batch = encodeFunctionData({
      abi: parseAbi(['function batch(bytes[])']),
      functionName: 'batch',
      args: [calls],
    });
    await place.anvil.receipt(await place.anvil.transact(batch));
    expect([await usesOf(place.anvil, nonce), await received()]).toEqual([1, amount]);
    const request = { ...other.request, paymentJson: Buffer.from(JSON.stringify(second)) };
    expect(await reasonOf(copy.payments.settle(request))).toBe('invalid_transaction_state');
    expect((await settle(copy, paid)).payment).toBeDefined();
  });

  test('a payer without the money is refused, and no gas is spent', async () => {
    const { copy } = await open();
    const payment = await newPayment(place, copy, {}, amount - 1n);
    expect(await reasonOf(settle(copy, payment))).toBe('insufficient_funds');
    expect(await place.anvil.transactionCount(place.key.address)).toBe(0);
    expect(await noncesIn(place.pool)).toEqual([]);
  });

  test('payments at once that the balance does not cover together cost no gas beyond those that it covers', async () => {
    const { copy } = await open();
    const { copy: other } = await open();
    const first = await newPayment(place, copy, {}, 2n * amount);
    const payments = [first];
    for (let at = 0; at < 5; at++) payments.push(await anotherPayment(place, copy, first));
    const settled = await Promise.allSettled(payments.map((payment, at) => settledBy(at % 2 ? copy : other, payment)));
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    for (const result of settled) {
      if (result.status === 'rejected')
        expect(await reasonOf(Promise.reject(result.reason as Error))).toBe('insufficient_funds');
    }
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([2n * amount, 2]);
  });

  test('a payment is not signed whose money a later block than that of its balance has moved for another one', async () => {
    const { copy } = await open();
    // Of another process.
    const { network } = await open();
    const first = await newPayment(place, copy);
    const { request } = await anotherPayment(place, copy, first);
    const settings = { offers: copy.offers, verifier };
    const { verified } = await verifyPresented(settings, request.purchase, readPayment(request.paymentJson));
    const plan = await network.plan({ ...verified, validUntil: new Date(verified.validUntilSeconds * 1_000) });
    await settledBy(copy, first);
    const sign = plan.state === 'ready' ? plan.sign : undefined;
    await expect(transaction(place.pool, (tx) => sign!(tx))).rejects.toThrow('under way');
  });

  test('money that the payer takes away before its block is not settled: refused once the time of the authorization is over, and the nonce is used', async () => {
    const { copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    const { payload } = payment;
    await place.anvil.takeAway(payment.payer.address, amount);
    await place.anvil.mine();
    expect(await place.anvil.transactionCount(place.key.address)).toBe(1);
    // It may still be moved.
    expect((await settle(copy, payment)).payment).toBeUndefined();
    await place.anvil.call('evm_setNextBlockTimestamp', Number(payload.authorization.validBefore));
    await place.anvil.mine();
    expect(await eventually(() => refusalOf(place.pool, payment))).toBe(
      'invalid_exact_evm_payload_authorization_valid_before',
    );
    expect(await received()).toBe(0n);
  });

  test('an authorization that its payer cancels after it was checked is refused and costs no gas', async () => {
    const { copy } = await open();
    const payment = await newPayment(place, copy);
    expect(await copy.payments.check(payment.request)).toMatchObject({ paidUtia: amount.toString() });
    await place.anvil.receipt(await place.anvil.transact(await cancelCall(payment)));
    for (const _ of counted(2)) expect(await reasonOf(settledBy(copy, payment))).toBe('invalid_transaction_state');
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([0n, 0]);
  });

  test('an authorization that its payer cancels before the block of our transaction is refused, and grants nothing', async () => {
    const { copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    await place.anvil.transactFirst(await cancelCall(payment));
    await place.anvil.mine();
    expect(await eventually(() => refusalOf(place.pool, payment))).toBe('invalid_transaction_state');
    expect(await reasonOf(settledBy(copy, payment))).toBe('invalid_transaction_state');
    // Ours was included and has failed.
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([0n, 1]);
  });

  /** From then on a use without a log is looked for no longer. */
  const mineBeyond = async ({ payload }: Payment) => {
    const seconds = Number(payload.authorization.validBefore) + 600;
    await place.anvil.call('evm_setNextBlockTimestamp', seconds);
    await place.anvil.mine();
  };

  test('a payment is settled whose block takes the place of the one after which it was sent', async () => {
    const { copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    const before = await place.anvil.call('evm_snapshot');
    await place.anvil.mine();
    await send(copy, payment);
    const height = await place.anvil.call<string>('eth_blockNumber');
    await place.anvil.call('evm_revert', before);
    // The node has the transaction still, and includes it now.
    await place.anvil.mine();
    expect(await place.anvil.call('eth_blockNumber')).toBe(height);
    await mineBeyond(payment);
    expect((await settledBy(copy, payment)).blockHeight).toBe(BigInt(height).toString());
    expect(await received()).toBe(amount);
  });

  test('an authorization that is spent though no block says how is logged as an error with its facts, and refused', async () => {
    const logged = jest.spyOn(log, 'error');
    const { copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    await place.pool.query('update evm_transaction set since_height = since_height + 1000');
    await place.anvil.mine();
    await mineBeyond(payment);
    expect(await eventually(() => refusalOf(place.pool, payment))).toBe('invalid_transaction_state');
    const { from, nonce } = payment.payload.authorization;
    const facts = { network: 'eip155:84532', payer: from.toLowerCase(), nonce, amount: amount.toString() };
    expect(logged).toHaveBeenCalledWith(expect.objectContaining(facts), expect.stringContaining('is spent'));
    logged.mockRestore();
  });

  test('a payment is answered once a block has it, and settled once as many follow as have to', async () => {
    const { copy } = await open({ depthBlocks: 2n }, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    expect((await settle(copy, payment)).payment).toBeUndefined();
    await place.anvil.mine();
    const { transaction, blockHeight } = await settledBy(copy, payment);
    expect(blockHeight).toBe(BigInt(await place.anvil.call<string>('eth_blockNumber')).toString());
    expect(await received()).toBe(amount);
    expect([await stateOf(place.pool, payment), await copy.claims.uncredited(10)]).toEqual(['settling', []]);
    await place.anvil.mine();
    await copy.settler.resume(10, 300);
    expect(await stateOf(place.pool, payment)).toBe('settling');
    await place.anvil.mine();
    await eventually(async () => (await stateOf(place.pool, payment)) === 'granted');
    const credited = await copy.claims.uncredited(10);
    expect(credited).toMatchObject([{ transaction: { hash: transaction }, blockHeight: BigInt(blockHeight) }]);
  });

  /** Has the chain forget the block of a payment that was answered, and what it sent. */
  const forgetBlock = async (copy: Copy, payment: Payment) => {
    const before = await place.anvil.call('evm_snapshot');
    await send(copy, payment);
    await place.anvil.mine();
    const { transaction } = await settledBy(copy, payment);
    await place.anvil.call('evm_revert', before);
    await place.anvil.call('anvil_dropTransaction', transaction);
    expect(await received()).toBe(0n);
  };

  test('a payment that falls out of the chain after it was answered is sent anew, and credited once', async () => {
    const { network, copy } = await open({ depthBlocks: 2n }, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await forgetBlock(copy, payment);
    await place.pool.query(`update evm_transaction set signed_at = signed_at - interval '10 seconds'`);
    await eventually(async () => {
      await network.keepNonces();
      await place.anvil.mine();
      return (await received()) === amount;
    });
    await place.anvil.mine(2);
    await eventually(async () => (await stateOf(place.pool, payment)) === 'granted');
    expect(await copy.claims.uncredited(10)).toHaveLength(1);
    // It has paid for its request once.
    expect(await reasonOf(settle(copy, payment))).toBe('payment_already_used');
    expect(await place.anvil.transactionCount(place.key.address)).toBe(1);
  });

  test('a payment that falls out of the chain after it was answered and expires is logged as an error, credited never, and still used', async () => {
    const logged = jest.spyOn(log, 'error');
    const { copy } = await open({ depthBlocks: 2n }, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await forgetBlock(copy, payment);
    await place.anvil.call('evm_setNextBlockTimestamp', Number(payment.payload.authorization.validBefore));
    await place.anvil.mine(3);
    await eventually(async () => (await stateOf(place.pool, payment)) === 'refused');
    expect(logged).toHaveBeenCalledWith(
      expect.objectContaining({ amount: amount.toString() }),
      expect.stringContaining('fallen out of the chain'),
    );
    logged.mockRestore();
    expect([await received(), await copy.claims.uncredited(10)]).toEqual([0n, []]);
    expect(await reasonOf(settle(copy, payment))).toBe('payment_already_used');
  });

  test('a payment whose time passes while blocks are held back is refused by the first block beyond it, not by a clock', async () => {
    let later = 0;
    const { copy } = await open({}, { waitMs: 300, clock: () => new Date(Date.now() + later) });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    later = 3_600_000;
    expect((await settle(copy, payment)).payment).toBeUndefined();
    expect(await stateOf(place.pool, payment)).toBe('settling');
    await place.anvil.call('evm_setNextBlockTimestamp', Number(payment.payload.authorization.validBefore));
    await place.anvil.mine();
    expect(await eventually(() => refusalOf(place.pool, payment))).toBe(
      'invalid_exact_evm_payload_authorization_valid_before',
    );
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([0n, 1]);
  });

  test('a transaction that is not included is replaced by one with higher fees and the same nonce', async () => {
    const { network, copy } = await open({ replaceAfterMs: 0 }, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    const [first] = await rows<{ hash: string }>(place.pool, sql`select hash from evm_transaction`);
    await network.keepNonces();
    const [second] = await rows<{ hash: string }>(place.pool, sql`select hash from evm_transaction`);
    expect(second!.hash).not.toBe(first!.hash);
    // The fees do not grow for ever.
    for (const _ of counted(20)) await network.keepNonces();
    const [last] = await rows<{ hash: string }>(place.pool, sql`select hash from evm_transaction`);
    await network.keepNonces();
    expect(await rows(place.pool, sql`select hash from evm_transaction`)).toEqual([last]);
    await place.anvil.mine();
    expect((await settledBy(copy, payment)).transaction).toBe(last!.hash);
    expect([await received(), await noncesIn(place.pool)]).toEqual([amount, [0]]);
  });

  test('a replacement is waited for as long as what it replaced', async () => {
    const { network, copy } = await open({ replaceAfterMs: 3_600_000 }, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    const stored = () => rows<{ hash: string }>(place.pool, sql`select hash from evm_transaction`);
    const first = await stored();
    await network.keepNonces();
    expect(await stored()).toEqual(first);
    await place.pool.query(`update evm_transaction set signed_at = signed_at - interval '2 hours'`);
    await network.keepNonces();
    const second = await stored();
    expect(second).not.toEqual(first);
    await network.keepNonces();
    expect(await stored()).toEqual(second);
  });

  test('a transaction that was stored and never sent, or was lost by its node, is sent again', async () => {
    const { network, copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    place.proxy.failsBefore = (method) => method === 'eth_sendRawTransaction';
    expect((await settle(copy, payment)).payment).toBeUndefined();
    await Promise.all(copies.splice(0).map(({ settler }) => settler.stop()));
    place.proxy.failsBefore = () => false;
    await place.pool.query(`update evm_transaction set signed_at = signed_at - interval '10 seconds', sent_at = now()`);
    await network.keepNonces();
    // The node includes what it has taken a moment later.
    await eventually(async () => (await received()) === amount);
    expect([await received(), await place.anvil.transactionCount(place.key.address)]).toEqual([amount, 1]);
  });

  test('while the node is away payments wait, and no others are taken; when it is back they are settled', async () => {
    const { network, copy } = await open({}, { waitMs: 300 });
    const payment = await newPayment(place, copy);
    const other = await newPayment(place, copy);
    let isAway = false;
    place.proxy.failsBefore = (method) => isAway || (method === 'eth_sendRawTransaction' && (isAway = true));
    expect((await settle(copy, payment)).payment).toBeUndefined();
    await eventually(() => isAway);
    await network.watch();
    expect(network.isOpen()).toBe(false);
    expect(network.health()).toMatchObject({
      status: 'DEGRADED',
      message: expect.stringContaining('eip155:84532') as string,
    });
    expect(await reasonOf(settle(copy, other))).toBe('settlement_unavailable');
    expect((await settle(copy, payment)).payment).toBeUndefined();
    place.proxy.failsBefore = () => false;
    await network.watch();
    expect(await settledBy(copy, payment)).toBeDefined();
    expect(await settledBy(copy, other)).toBeDefined();
    expect(await received()).toBe(2n * amount);
  });

  test('an account that cannot pay gas closes its network: it is not offered, and health names it; refilled, it opens', async () => {
    const { network, copy } = await open({}, { waitMs: 300 });
    const { anvil, key } = place;
    const payment = await newPayment(place, copy);
    const offered = async () => {
      const about = { resource: 'https://granary.example/', description: '', error: '' };
      const { acceptsJson } = await offerRead(copy.offers, { ...about, purchase: payment.request.purchase });
      return (JSON.parse(acceptsJson) as unknown[]).length;
    };
    expect([await offered(), network.health().status]).toEqual([1, 'HEALTHY']);
    await anvil.setBalance(key.address, 10n);
    await network.watch();
    const message = `eip155:84532: ${key.address} has too little to pay gas, no payments are taken`;
    expect([await offered(), network.health()]).toEqual([0, { status: 'DEGRADED', message }]);
    expect(await reasonOf(settle(copy, payment))).toBe('settlement_unavailable');
    await anvil.setBalance(key.address, 10n ** 18n);
    await network.watch();
    expect(await offered()).toBe(1);
    // A payment that was taken before is not lost.
    const before = await newPayment(place, copy);
    place.proxy.failsBefore = (method) => method === 'eth_sendRawTransaction';
    expect((await settle(copy, before)).payment).toBeUndefined();
    await anvil.setBalance(key.address, 0n);
    place.proxy.failsBefore = () => false;
    expect((await settle(copy, before)).payment).toBeUndefined();
    await anvil.setBalance(key.address, 10n ** 18n);
    expect(await settledBy(copy, before)).toBeDefined();
  });

  test('above the ceiling of gas nothing is sent: the network closes, health says so, and what was taken waits', async () => {
    const { network, copy } = await open({}, { waitMs: 300 });
    const { anvil, proxy, key } = place;
    const [before, other] = [await newPayment(place, copy), await newPayment(place, copy)];
    const inWei = (gwei: number) => `0x${(BigInt(gwei) * 1_000_000_000n).toString(16)}`;
    const funds = () => anvil.call<string>('eth_getBalance', key.address, 'latest');
    const had = await funds();
    // It has the network taken as open, and names another fee once a payment is to be signed.
    proxy.answer = (method, result) => (method === 'eth_maxPriorityFeePerGas' ? inWei(9_000) : result);
    expect((await settle(copy, before)).payment).toBeUndefined();
    await eventually(() => !network.isOpen());
    await network.watch();
    const message = 'eip155:84532: gas costs more than 20 gwei (EVM_MAX_FEE_GWEI), no payments are taken';
    expect([network.isOpen(), network.health()]).toEqual([false, { status: 'DEGRADED', message }]);
    expect(await reasonOf(settle(copy, other))).toBe('settlement_unavailable');
    expect([await funds(), await noncesIn(place.pool)]).toEqual([had, []]);
    expect(proxy.calls.get('eth_sendRawTransaction')).toBeUndefined();
    proxy.answer = (_, result) => result;
    await network.watch();
    expect(await settledBy(copy, before)).toBeDefined();
    expect(await settledBy(copy, other)).toBeDefined();
    // A base fee counts as well.
    proxy.answer = (method, result) =>
      method === 'eth_getBlockByNumber' ? { ...(result as object), baseFeePerGas: inWei(9_000) } : result;
    await network.watch();
    expect(network.health().message).toBe(message);
  });

  test('a transaction offers no more than the ceiling for gas, also where it replaces another one', async () => {
    const { network, copy } = await open({ replaceAfterMs: 0, maxFeePerGas: 4_000_000_000n }, { waitMs: 300 });
    const { Transaction } = await import('micro-eth-signer');
    const offered = async () => {
      const [stored] = await rows<{ bytes: Buffer }>(place.pool, sql`select bytes from evm_transaction`);
      return (Transaction.fromRawBytes(stored!.bytes).raw as { maxFeePerGas: bigint }).maxFeePerGas;
    };
    const payment = await newPayment(place, copy);
    await send(copy, payment);
    const first = await offered();
    for (const _ of counted(10)) await network.keepNonces();
    const last = await offered();
    expect([first < last, last <= 4_000_000_000n]).toEqual([true, true]);
    await place.anvil.mine();
    expect(await settledBy(copy, payment)).toBeDefined();
  });
});
