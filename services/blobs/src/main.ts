import { runService } from '@granary/shared/service/run';
import { blobsConfig } from './config';
import { blobsSchema, startBlobs } from './service';

void runService('blobs', blobsConfig, process.env, startBlobs, blobsSchema);
