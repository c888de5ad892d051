import { runService } from '@granary/shared/service/run';
import { dataConfig } from './config';
import { dataSchema, startData } from './service';

void runService('data', dataConfig, process.env, startData, dataSchema);
