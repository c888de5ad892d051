import { runService } from '@granary/shared/service/run';
import { dataConfig } from './config';
import { startData } from './service';

void runService('data', dataConfig, process.env, startData);
