import { runService } from '@granary/shared/service/run';
import { financeConfig } from './config';
import { financeSchema, startFinance } from './service';
import { makeSeed } from './wallets/seed-command';

void runService('finance', financeConfig, process.env, startFinance, financeSchema, { seed: makeSeed });
