import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { base58 } from '@scure/base';
import { address, getProgramDerivedAddress, getTransactionDecoder, lamports } from '@solana/kit';
import { FailedTransactionMetadata, LiteSVM } from 'litesvm';
import { mintData, solanaTest, tokenProgramAddress } from './solana-client';

/** The hash of the first block of the test network. */
const genesisHash = 'EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG';
const signatureBytes = 64;

type Status = { slot: number; err: object | null; confirmationStatus: string };

/** The fault of the next transaction that a node is given. */
export type Fault = 'none' | 'lost' | 'refused' | 'answer lost';

/** The programs of Solana in this process, with USDC at its address of the test network, behind nodes over JSON-RPC. */
export class SolanaChain {
  fault: Fault = 'none';
  commitment = 'confirmed';
  /** The time of the last finalized block, in seconds since 1970. */
  timeSeconds = Math.floor(Date.now() / 1_000);
  /** Transactions that nodes were given. */
  readonly sent: string[] = [];
  private readonly svm = new LiteSVM();
  private readonly servers: Server[] = [];
  private readonly statuses = new Map<string, Status>();
  private height = 1_000;

  constructor() {
    this.put(solanaTest.mint, mintData());
  }

  readonly blockhash = (): string => this.svm.latestBlockhash();

  /** The block that transactions have named so far is too old from now on. */
  expireBlockhash(): void {
    this.svm.expireBlockhash();
  }

  /** Gives an address money for fees. */
  airdrop(to: string, amount = 1_000_000_000n): void {
    this.svm.airdrop(address(to), lamports(amount));
  }

  /** Sets how much of the token an owner has. */
  async give(owner: string, amount: bigint): Promise<void> {
    const data = Buffer.alloc(165);
    data.set([...base58.decode(solanaTest.mint), ...base58.decode(owner)]);
    data.writeBigUInt64LE(amount, 64);
    data[108] = 1;
    this.put(await tokenAccountOf(owner), data);
  }

  async balanceOf(owner: string): Promise<bigint> {
    const account = this.svm.getAccount(address(await tokenAccountOf(owner)));
    return account.exists ? Buffer.from(account.data).readBigUInt64LE(64) : -1n;
  }

  /** Executes a transaction. Undefined: it has succeeded. */
  execute(transaction: Buffer): string | undefined {
    const result = this.svm.sendTransaction(getTransactionDecoder().decode(transaction));
    return result instanceof FailedTransactionMetadata ? result.toString() : undefined;
  }

  /** The URL of another node. */
  async serve(): Promise<string> {
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const { id, method, params } = JSON.parse(Buffer.concat(chunks).toString()) as Call;
        response.setHeader('content-type', 'application/json');
        const answer = this.answer(method, params ?? []);
        if (answer === undefined) response.destroy();
        else response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.servers.push(server);
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    await Promise.all(
      this.servers.map((server) => {
        server.closeAllConnections();
        return new Promise<void>((resolve) => server.close(() => resolve()));
      }),
    );
  }

  /** Undefined: the connection is cut. */
  private answer(method: string, params: readonly unknown[]): object | undefined {
    const [first] = params;
    const inContext = (value: unknown) => ({ result: { context: { slot: this.height }, value } });
    switch (method) {
      case 'getGenesisHash':
        return { result: genesisHash };
      case 'getBlockHeight':
      case 'getSlot':
        return { result: (this.height += 1) };
      case 'getBlockTime':
        return { result: this.timeSeconds };
      case 'getBalance':
        return inContext(Number(this.svm.getBalance(address(first as string)) ?? 0n));
      case 'getAccountInfo':
        return inContext(mintAccount);
      case 'getLatestBlockhash':
        return inContext({ blockhash: this.blockhash(), lastValidBlockHeight: this.height + 150 });
      case 'isBlockhashValid':
        return inContext(first === this.blockhash());
      case 'simulateTransaction':
        return inContext({ err: this.simulate(first as string), logs: [] });
      case 'getSignatureStatuses':
        return inContext((first as string[]).map((signature) => this.statuses.get(signature) ?? null));
      case 'sendTransaction':
        return this.take(Buffer.from(first as string, 'base64'));
      default:
        return { error: { code: -32_601, message: `Method not found: ${method}` } };
    }
  }

  private take(transaction: Buffer): object | undefined {
    const { fault } = this;
    this.fault = 'none';
    const signature = base58.encode(transaction.subarray(1, 1 + signatureBytes));
    this.sent.push(signature);
    if (fault === 'refused') return { error: { code: -32_005, message: 'Node is behind' } };
    if (fault !== 'lost' && !this.statuses.has(signature)) {
      const problem = this.execute(transaction);
      // A transaction that names an unknown block, or is not signed, never gets into one.
      if (problem === undefined || /InstructionError/.test(problem)) {
        const err = problem === undefined ? null : { InstructionError: [2, { Custom: 1 }] };
        this.statuses.set(signature, { slot: this.height, err, confirmationStatus: this.commitment });
      }
    }
    return fault === 'answer lost' ? undefined : { result: signature };
  }

  private simulate(transaction: string): unknown {
    const decoded = getTransactionDecoder().decode(Buffer.from(transaction, 'base64'));
    this.svm.withSigverify(false);
    try {
      const result = this.svm.simulateTransaction(decoded);
      if (!(result instanceof FailedTransactionMetadata)) return null;
      const text = result.toString();
      if (/BlockhashNotFound/.test(text)) return 'BlockhashNotFound';
      const [, code] = /Custom\D*(\d+)/.exec(text) ?? [];
      return { InstructionError: [2, code === undefined ? 'GenericError' : { Custom: Number(code) }] };
    } finally {
      this.svm.withSigverify(true);
    }
  }

  private put(account: string, data: Buffer): void {
    const [programAddress, space] = [address(tokenProgramAddress), BigInt(data.length)];
    const about = { executable: false, lamports: lamports(10_000_000n), programAddress, space };
    this.svm.setAccount({ address: address(account), data, ...about });
  }
}

interface Call {
  id: number;
  method: string;
  params?: readonly unknown[];
}

const mintAccount = {
  data: [mintData().toString('base64'), 'base64'],
  owner: tokenProgramAddress,
  space: 82,
  executable: false,
  lamports: 1,
  rentEpoch: 0,
};

/** The account with the tokens of an owner, as the official library finds it. */
export async function tokenAccountOf(
  owner: string,
  { program = tokenProgramAddress, mint = solanaTest.mint } = {},
): Promise<string> {
  const [account] = await getProgramDerivedAddress({
    programAddress: address('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL'),
    seeds: [owner, program, mint].map((text) => base58.decode(text)),
  });
  return account;
}
