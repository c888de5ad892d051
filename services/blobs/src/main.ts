import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { blobsConfig } from './config';
import { startBlobs } from './service';

const log = createLogger('blobs', process.env['LOG_LEVEL'] ?? 'info');
void runUntilSignalled(log, () => startBlobs(readConfig(blobsConfig, process.env), { log }));
