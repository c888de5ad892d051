import { runService } from '@granary/shared/service/run';
import { blobsConfig } from './config';
import { startBlobs } from './service';

void runService('blobs', blobsConfig, process.env, startBlobs);
