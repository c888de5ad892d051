import { createHash } from 'node:crypto';
import { readTransaction, verifySignature } from '@granary/shared/money/cosmos/read-transaction';
import { encodeTransfer, type Output, type Transfer } from '@granary/shared/money/cosmos/transaction';
import { newCosmosPayer, signCosmos } from '@granary/testing/cosmos-payer';

const broker = newCosmosPayer();
const [ann, bob, platform] = [newCosmosPayer(), newCosmosPayer(), newCosmosPayer()].map(({ address }) => address);
const rules = { prefix: 'celestia', chainId: 'chain-1', memoBytesMax: 256, mayExec: true };
const outputs: [Output, ...Output[]] = [
  { address: platform!, amount: 5n, granter: ann! },
  { address: platform!, amount: 7n, granter: bob! },
];
const transfer: Omit<Transfer, 'sender'> = {
  chainId: 'chain-1',
  accountNumber: 3n,
  sequence: 9n,
  denom: 'utia',
  memo: '',
  timeoutHeight: 50n,
  fee: { amount: 300n, gas: 150_000n },
  outputs,
};

test('what granters pay is one MsgExec, which is read as it was written', () => {
  const bytes = signCosmos(broker, transfer);
  const read = verifySignature(readTransaction(bytes, rules), 3n);
  expect(read).toEqual({ ...transfer, sender: broker.address });
  expect(createHash('sha256').update(bytes).digest('hex')).toHaveLength(64);
});

test('a reader that expects transfers of the sender refuses it', () => {
  const bytes = signCosmos(broker, transfer);
  expect(() => readTransaction(bytes, { ...rules, mayExec: false })).toThrow(
    'Only MsgSend and MsgMultiSend are expected',
  );
});

test('outputs with and without granters do not go together', () => {
  const mixed: [Output, Output] = [outputs[0], { address: platform!, amount: 1n }];
  const draft = { ...transfer, sender: broker.address, outputs: mixed };
  expect(() => encodeTransfer(draft, new Uint8Array(33))).toThrow('All outputs have a granter, or none');
});
