import { runService } from '@granary/shared/service/run';
import { financeConfig } from './config';
import { financeSchema, startFinance } from './service';

void runService('finance', financeConfig, process.env, startFinance, financeSchema);
