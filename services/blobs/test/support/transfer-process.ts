import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { newCall } from '@granary/shared/rpc/types';
import { ServiceError } from '@granary/shared/errors';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { openTrust } from '@granary/shared/trust/trust';
import { Transfers } from '@granary/gateway/admission/transfers';
import { BlobProxy } from '@granary/gateway/blob-proxy/proxy';
import { limitMs } from '@granary/testing/speed';
import { blobsConfig, type BlobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { appId, collection, uploadGrant } from './bench';
import { commitsInMemory } from './commits';

// A process with the service and the gateway's proxy in it, or only one of them, whose memory and CPU a test measures.
// POST / uploads the blob that x-blob-id names, GET / reads it; the parent asks for the figures by message.
async function main(): Promise<void> {
  const config = readConfig(blobsConfig, process.env);
  // The address of a service in another process, or "none" when this is to be the service alone.
  const elsewhere = process.env['TEST_SERVICE_ADDRESS'];
  const address = elsewhere === undefined || elsewhere === 'none' ? await startService(config) : elsewhere;
  if (elsewhere === 'none') process.send?.({ address });
  else startHop(config, address);
  answerFigures();
}

async function startService(config: BlobsConfig): Promise<string> {
  const log = createLogger('blobs', 'silent');
  const { signer } = openTrust('data', config, log);
  const none = { epoch: '0', xid: '0', pos: '0' };
  const running = await startBlobs(config, {
    log,
    listen: false,
    data: { implementation: commitsInMemory().implementation },
    dataOutbox: {
      implementation: {
        definition: outboxDefinition,
        handlers: {
          read: async ({ consumer, topics, after, waitMs }) => {
            await delay(Math.max(50, waitMs));
            const page = { consumer, topics, after: after ?? none, next: after ?? none, events: [] };
            const signatures = signer.signPage(page, consumer);
            return { events: [], next: page.next, stalledMs: '0', readAtMs: '0', signatures };
          },
          readAggregate: async () => ({ events: [] }),
        },
      },
    },
  });
  return running.httpAddress;
}

function startHop(config: BlobsConfig, address: string): void {
  const log = createLogger('gateway', 'silent');
  const credentials = openTrust('gateway', config, log).towards('blobs');
  // The limits admit as many transfers as a test begins, whatever their rate.
  const transfers = new Transfers({
    STREAM_CONCURRENCY: 10_000,
    STREAM_APP_PERCENT: 100,
    STREAM_CLIENT_PERCENT: 100,
    QUEUE_TIMEOUT_MS: 0,
    UPLOAD_TIMEOUT_MS: 3_600_000,
    UPLOAD_GRACE_MS: 1_000,
    DOWNLOAD_GRACE_MS: 1_000,
    EXPORTS: 8,
    EXPORTS_PER_APP: 2,
    IMPORTS: 2,
    IMPORTS_PER_APP: 2,
    TRANSFER_MIN_BYTES_PER_SECOND: 0,
  });
  const proxy = new BlobProxy({ address, credentials, idleTimeoutMs: limitMs(10_000), log });
  const server = createServer((request, response) => {
    const blobId = String(request.headers['x-blob-id']);
    const call = newCall('test', limitMs(5_000));
    const work = async () => {
      if (request.method === 'POST') {
        const permit = uploadGrant({ blobId, maxBytes: config.MAX_BLOB_BYTES });
        response.end(await transfers.upload({}, (transfer) => proxy.upload(request, permit, call, transfer)));
      } else {
        const permit = { op: 'read', appId, collection, blobId } as const;
        await transfers.download({}, (transfer) => proxy.read(request, response, permit, call, transfer));
      }
    };
    work().catch((error: unknown) => {
      if (response.headersSent) return response.destroy();
      response.writeHead(400).end(error instanceof ServiceError ? error.reason : String(error));
      request.resume();
    });
  });
  server.listen(0, '127.0.0.1', () => process.send?.({ port: (server.address() as AddressInfo).port }));
}

function answerFigures(): void {
  let peakBytes = 0;
  setInterval(() => (peakBytes = Math.max(peakBytes, process.memoryUsage.rss())), 20).unref();
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    const rssBytes = process.memoryUsage.rss();
    process.send?.({ rssBytes, peakBytes: Math.max(peakBytes, rssBytes), cpuMs: (user + system) / 1000 });
    peakBytes = 0;
  });
}

void main();
