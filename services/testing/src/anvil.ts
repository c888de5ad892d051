import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { eventually } from './eventually';

/** The address of USDC on Base Sepolia, a network whose number anvil is given here. */
export const usdc = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
export const anvilNetwork = 'eip155:84532';

/** The wrapper of the package would stay behind when it is killed, so its binary is started. */
function findAnvil(): string | undefined {
  try {
    return join(dirname(require.resolve('@foundry-rs/anvil-linux-amd64/package.json')), 'bin', 'anvil');
  } catch {
    return undefined;
  }
}

/** Jest's `describe` where anvil can run; elsewhere `describe.skip`, unless REQUIRE_STACK=1 demands it. */
export function describeWithAnvil<D extends { skip: unknown }>(describe: D): D | D['skip'] {
  if (findAnvil() !== undefined || process.env['REQUIRE_STACK'] === '1') return describe;
  process.stderr.write('SKIPPED: payments on an EVM network, for there is no anvil for this machine\n');
  return describe.skip;
}

/**
 * A node of an EVM network with one block for each transaction, unless mining is stopped, and the token at the address
 * of USDC.
 */
export class Anvil {
  private constructor(
    readonly url: string,
    private readonly end: () => Promise<void>,
  ) {}

  static async start(chainId = 84_532): Promise<Anvil> {
    const child = spawn(findAnvil()!, ['--port', '0', '--chain-id', String(chainId)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    let address: string | undefined;
    for await (const line of createInterface(child.stdout)) {
      address = /Listening on (\S+)/.exec(line)?.[1];
      if (address !== undefined) break;
    }
    child.stdout.resume();
    if (address === undefined) throw new Error('anvil has ended');
    const anvil = new Anvil(`http://${address}`, () => (child.kill('SIGKILL'), ended));
    await anvil.putToken().catch((error: unknown) => anvil.stop().then(() => Promise.reject(error as Error)));
    return anvil;
  }

  async call<T>(method: string, ...params: unknown[]): Promise<T> {
    const response = await fetch(this.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
    const { result, error } = (await response.json()) as { result: T; error?: { message: string } };
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  /** Sends a transaction of an account that anvil has, which is included at once while it mines. */
  async transact(data: string, to = usdc): Promise<string> {
    const [from] = await this.call<string[]>('eth_accounts');
    return this.call('eth_sendTransaction', { from, to, data, gas: '0x4c4b40' });
  }

  /**
   * Sends a transaction with fees by which the next block has it before all others; of an account that anvil has, or
   * plays.
   */
  async transactFirst(data: string, from?: string): Promise<string> {
    const fees = { maxFeePerGas: '0x174876e800', maxPriorityFeePerGas: '0x174876e800' };
    const [own] = await this.call<string[]>('eth_accounts');
    return this.call('eth_sendTransaction', { from: from ?? own, to: usdc, data, gas: '0x4c4b40', ...fees });
  }

  /** Has an account send units of the token elsewhere in the next block, before what others send for it. */
  async takeAway(account: string, units: bigint): Promise<void> {
    await this.setBalance(account, 10n ** 18n);
    await this.call('anvil_impersonateAccount', account);
    await this.transactFirst(`0xa9059cbb${word(usdc)}${word(units.toString(16))}`, account);
  }

  /** Gives an account units of the token. */
  async mint(account: string, units: bigint): Promise<void> {
    await this.receipt(await this.transact(`0x40c10f19${word(account)}${word(units.toString(16))}`));
  }

  /** Waits until a transaction is included. */
  receipt<T>(hash: string): Promise<T> {
    return eventually(async () => (await this.call<T | null>('eth_getTransactionReceipt', hash)) ?? undefined);
  }

  async tokenBalance(account: string): Promise<bigint> {
    return BigInt(await this.call<string>('eth_call', { to: usdc, data: `0x70a08231${word(account)}` }, 'latest'));
  }

  /** Gives an account this much to pay gas, in wei. */
  async setBalance(account: string, wei: bigint): Promise<void> {
    await this.call('anvil_setBalance', account, `0x${wei.toString(16)}`);
  }

  async transactionCount(account: string): Promise<number> {
    return Number(await this.call<string>('eth_getTransactionCount', account, 'latest'));
  }

  async mine(blocks = 1): Promise<void> {
    await this.call('anvil_mine', `0x${blocks.toString(16)}`);
  }

  stop(): Promise<void> {
    return this.end();
  }

  private async putToken(): Promise<void> {
    const { bytecode } = JSON.parse(readFileSync(join(__dirname, 'erc3009', 'token.json'), 'utf8')) as {
      bytecode: string;
    };
    const [from] = await this.call<string[]>('eth_accounts');
    const hash = await this.call<string>('eth_sendTransaction', { from, data: bytecode, gas: '0x4c4b40' });
    const { contractAddress } = await this.receipt<{ contractAddress: string }>(hash);
    await this.call('anvil_setCode', usdc, await this.call('eth_getCode', contractAddress, 'latest'));
  }
}

/** A proxy before a node: the calls that it forwards can be made to fail. */
export class NodeProxy {
  /** Whether a call of this method is cut before it arrives. */
  failsBefore: (method: string) => boolean = () => false;
  /** Whether its answer is lost. */
  failsAfter: (method: string) => boolean = () => false;
  /** Awaited before a call of this method is forwarded. */
  before: (method: string) => Promise<void> = () => Promise.resolve();
  /** Returns the answer in place of the node's, both as JSON-RPC has them in `result`: a node may lie. */
  answer: (method: string, result: unknown) => unknown = (_, result) => result;
  /** How often each method was called. */
  readonly calls = new Map<string, number>();

  private constructor(private readonly server: Server) {}

  static async start(target: string): Promise<NodeProxy> {
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        const { method } = JSON.parse(body) as { method: string };
        proxy.calls.set(method, (proxy.calls.get(method) ?? 0) + 1);
        if (proxy.failsBefore(method)) return void request.socket.destroy();
        void proxy
          .before(method)
          .then(() => fetch(target, { method: 'POST', headers: { 'content-type': 'application/json' }, body }))
          .then((answer) => answer.text())
          .then(
            (text) => {
              if (proxy.failsAfter(method)) request.socket.destroy();
              else response.end(proxy.told(method, text));
            },
            () => request.socket.destroy(),
          );
      });
    });
    const proxy = new NodeProxy(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  private told(method: string, text: string): string {
    const said = JSON.parse(text) as { result?: unknown };
    return 'result' in said ? JSON.stringify({ ...said, result: this.answer(method, said.result) }) : text;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** A value as an argument of a call, 32 bytes in hexadecimal digits. */
const word = (hex: string): string => hex.replace(/^0x/, '').toLowerCase().padStart(64, '0');
