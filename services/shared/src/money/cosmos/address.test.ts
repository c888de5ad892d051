import { bech32 } from '@scure/base';
import { HDKey } from '@scure/bip32';
import { mnemonicToSeedSync } from '@scure/bip39';
import { addressOf, addressProblem } from './address';

const encode = (prefix: string, length: number) =>
  bech32.encode(prefix, bech32.toWords(new Uint8Array(length).fill(7)));

test('the address of a key is the one that wallets of Cosmos chains show for it', () => {
  const mnemonic = `${'abandon '.repeat(11)}about`;
  const key = HDKey.fromMasterSeed(mnemonicToSeedSync(mnemonic)).derive("m/44'/118'/0'/0/0");
  expect(addressOf(key.publicKey!, 'cosmos')).toBe('cosmos19rl4cm2hmr8afy4kldpxz3fka4jguq0auqdal4');
});

test('addresses of 20 and 32 bytes with the prefix are accepted', () => {
  for (const length of [20, 32]) {
    const address = encode('celestia', length);
    expect(addressProblem(address, 'celestia')).toBeUndefined();
  }
});

test('everything else is refused with a reason', () => {
  const good = encode('celestia', 20);
  const wrong: Array<[string, RegExp]> = [
    ['', /bech32/],
    ['celestia1', /bech32/],
    ['0x52908400098527886E0F7030069857D2E4169EE7', /bech32/],
    [`${good} `, /bech32/],
    [good.replace(/.$/, good.endsWith('q') ? 'p' : 'q'), /checksum/],
    [good.slice(0, 20) + good.slice(20).toUpperCase(), /bech32/],
    [good.toUpperCase(), /lower case/],
    ['celestia1\u0000', /bech32/],
    [encode('cosmos', 20), /prefix must be "celestia"/],
    [encode('celestia', 19), /length/],
    [encode('celestia', 33), /length/],
    // Words that are no whole number of bytes.
    [bech32.encode('celestia', [1, 2, 3]), /length/],
  ];
  for (const [text, problem] of wrong) {
    expect(addressProblem(text, 'celestia')).toMatch(problem);
  }
});
