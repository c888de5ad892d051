import { runService } from '@granary/shared/run-service';
import { blobsConfig } from './config';
import { startBlobs } from './service';

void runService('blobs', blobsConfig, process.env, startBlobs);
