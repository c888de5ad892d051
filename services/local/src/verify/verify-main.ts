import { readConfig } from '@granary/shared/config';
import { runCommand } from '../backup/command';
import { readFromApi, readFromFile } from './chain-source';
import { verifyConfig } from './config';
import { exportChain, verifyChain } from './verify-chain';

void runCommand('The verification', async (say, signal) => {
  const config = readConfig(verifyConfig, process.env);
  const { VERIFY_FROM: from, VERIFY_EXPORT: to, VERIFY_KNOWN: knownText } = config;
  const api = {
    url: config.GRANARY_URL.replace(/\/+$/, ''),
    appId: config.GRANARY_APP ?? '',
    key: config.GRANARY_KEY ?? '',
  };
  const shown = () => (from === undefined ? readFromApi(api, signal) : readFromFile(from));
  if (to !== undefined) {
    await exportChain(await shown(), to, signal);
    say(`The chain is in ${to}.`);
  }
  const source = await (to === undefined ? shown() : readFromFile(to));
  const [height, hash] = knownText?.split(':') ?? [];
  const known = height === undefined || hash === undefined ? undefined : { height: BigInt(height), hash };
  const { commits, texts, hash: head } = await verifyChain(source, known, say);
  say(`The chain of ${source.appId} is whole: ${commits} commits, the last is ${head}.`);
  say(
    `  ${texts.checked} texts are as they were committed; of ${texts.absent} documents and blobs only the hash was checked.`,
  );
});
