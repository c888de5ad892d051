import { runService } from '@granary/shared/run-service';
import { dataConfig } from './config';
import { startData } from './service';

void runService('data', dataConfig, process.env, startData);
