import type { Request } from 'express';
import type { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { Logger } from '@granary/shared/logger';
import type { Answers } from '../admission/answers';
import type { Bodies } from '../admission/bodies';
import type { RequestMemory } from '../admission/client-budget';
import type { KnownApps } from '../admission/known-apps';
import type { Transfers } from '../admission/transfers';
import type { Answer } from '../http/answer';
import type { AgentSpending } from '../spending/agent-spending';
import type { AppOwners } from './app-owners';
import type { KeyLookup } from './key-lookup';
import type { PaymentNetworks } from '../spending/payment-networks';
import type { PendingWrites } from '../spending/pending-writes';
import type { BlobProxy } from '../blob-proxy/proxy';
import type { Clients } from '../clients/clients';
import type { KeyWatch } from '../clients/key-watch';
import type { Compression } from '../http/compression';
import type { GatewayConfig } from '../config';
import type { Feeds } from '../feed/feeds';
import type { FairShareLimiter } from '../admission/fair-share-limiter';
import type { HealthReport } from '../clients/health';
import type { StaticAnswer } from '../http/static-answer';

/** The parts of the gateway that handlers use. */
export interface GatewayContext {
  config: GatewayConfig;
  clients: Clients;
  /** Moves the bytes of blobs. */
  blobProxy: BlobProxy;
  log: Logger;
  keys: KeyLookup;
  owners: AppOwners;
  paymentNetworks: PaymentNetworks;
  /** The payments of agent keys. */
  agentSpending: AgentSpending;
  /** Places for requests that wait until a block has their payments. */
  paymentWaits: Semaphore;
  /** Writes whose payments take long. */
  pendingWrites: PendingWrites;
  operatorKeyHash: Buffer;
  apps: KnownApps;
  /** The key under which the client of a request is counted for its limits. */
  addressOf: (request: Request) => string;
  memory: RequestMemory;
  bodies: Bodies;
  answers: Answers;
  /** The slots of requests that are processed at once, transfers apart. */
  slots: Semaphore;
  /** Uploads and downloads of blobs, and exports. */
  transfers: Transfers;
  /** Ends streams whose keys are revoked. */
  keyWatch: KeyWatch;
  /** The change feeds. */
  feeds: Feeds;
  fairShares: FairShareLimiter;
  compression: Compression;
  /** How every service is, as of half a second ago at most. */
  health: () => Promise<HealthReport>;
  /** True from the first moment of a stop. */
  isDraining: () => boolean;
  /** The published document, as it is sent. */
  openapi: StaticAnswer;
  /** The page at /docs. */
  docs: { for(request: Request): Promise<Answer> };
}
