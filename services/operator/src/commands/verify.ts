import path from 'node:path';
import { readConfig } from '@granary/shared/config';
import { readFromApi, readFromFile } from '../chains/chain-source';
import { verifyConfig } from '../chains/config';
import { exportChain, verifyChain } from '../chains/verify-chain';
import { defineCommand } from '../program/command';

const usage = `Checks the hash chain of an app, over the HTTP API or from an export, and names the first height that does not fit.

  npm run verify -- --app <app_id> --key <key> [--url <url>] [--export <file>] [--known <height>:<hash>]
  npm run verify -- --from <file> [--known <height>:<hash>]

  --app <app_id>            the app                                              (GRANARY_APP)
  --key <key>               a key of it with Read                                (GRANARY_KEY)
  --url <url>               address of the gateway, default 127.0.0.1:8080       (GRANARY_URL)
  --export <file>           writes the chain to a file, which is then checked
  --from <file>             checks such a file; needs no service
  --known <height>:<hash>   a commit hash that was kept: the chain must contain it
  -h, --help                prints this text`;

export const verify = defineCommand({
  title: 'The verification',
  endsInOrder: true,
  usage,
  options: {
    app: { type: 'string' },
    key: { type: 'string' },
    url: { type: 'string' },
    export: { type: 'string' },
    from: { type: 'string' },
    known: { type: 'string' },
  },
  settings: {
    app: 'GRANARY_APP',
    key: 'GRANARY_KEY',
    url: 'GRANARY_URL',
    export: 'VERIFY_EXPORT',
    from: 'VERIFY_FROM',
    known: 'VERIFY_KNOWN',
  },
  run: async (_values, _positionals, { environment, directory, say, signal }) => {
    const config = readConfig(verifyConfig, environment);
    const { GRANARY_URL: url, GRANARY_APP: appId = '', GRANARY_KEY: key = '', VERIFY_KNOWN: knownText } = config;
    const [from, to] = [config.VERIFY_FROM, config.VERIFY_EXPORT].map((file) => file && path.resolve(directory, file));
    const read = () =>
      from === undefined ? readFromApi({ url: url.replace(/\/+$/, ''), appId, key }, signal) : readFromFile(from);
    if (to !== undefined) {
      await exportChain(await read(), to, signal);
      say(`The chain is in ${to}.`);
    }
    const source = await (to === undefined ? read() : readFromFile(to));
    const [height, hash] = knownText?.split(':') ?? [];
    const knownLink = height === undefined || hash === undefined ? undefined : { height: BigInt(height), hash };
    const { commits, texts, hash: head } = await verifyChain(source, knownLink, say);
    say(`The chain of ${source.appId} is whole: ${commits} commits, the last is ${head}.`);
    say(
      `  ${texts.checked} texts are as they were committed; of ${texts.absent} documents and blobs only the hash was checked.`,
    );
  },
});
