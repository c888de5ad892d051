import type { Environment } from '@granary/shared/config';
import { curlLines, type DemoApp } from './demo-app';

export interface Ready {
  /** The address of the gateway on this machine. */
  url: string;
  /** Settings of the services. */
  environment: Environment;
  host: string;
  dataDir: string;
  operatorKey: string;
  /** The operator key is stored in the file `operator-key` of the data directory. */
  isKeyKept: boolean;
  app: DemoApp;
  /** False: the lines contain neither key. */
  showKeys: boolean;
  /** One line per additional process. */
  parts?: string[];
}

/** The ready message, printed once requests are answered. */
export function readyLines({ url, environment, host, dataDir, app, showKeys, parts = [], ...key }: Ready): string[] {
  const { PUBLIC_URL: publicUrl, DEFAULT_READ: defaultRead } = environment;
  // The public address may not work yet: whoever starts Granary tries it on this machine.
  const base = url.replace(/\/+$/, '');
  const isOpen = host === '0.0.0.0' || host === '::';
  return [
    `Granary is ready at ${url}`,
    ...(publicUrl === undefined ? [] : [`  public address, for clients elsewhere: ${publicUrl.replace(/\/+$/, '')}`]),
    ...(isOpen ? ['  listening on all addresses of this machine, without TLS'] : []),
    ...(isOpen && publicUrl === undefined
      ? ['  PUBLIC_URL is not set: examples for clients name this machine only']
      : []),
    `  data directory: ${dataDir}`,
    `  operator key: ${showKeys ? key.operatorKey : `not shown${key.isKeyKept ? `; it is in ${dataDir}/operator-key` : ''}`}`,
    `  demo app: ${app.appId}`,
    `  demo app key: ${showKeys ? app.key : `not shown; it is in ${dataDir}/demo-app.json`}`,
    ...parts,
    '',
    `The API, with a command for each route: ${base}/docs`,
    'A tour with 3,201 films, in another terminal: npm run demo',
    '',
    'Five calls to begin with:',
    '',
    ...curlLines(base, showKeys ? app : { ...app, key: '$APP_KEY' }, defaultRead !== 'private').map(
      (line) => `${line}\n`,
    ),
  ];
}
