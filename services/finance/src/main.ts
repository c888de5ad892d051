import { runService } from '@granary/shared/run-service';
import { financeConfig } from './config';
import { startFinance } from './service';

void runService('finance', financeConfig, process.env, startFinance);
