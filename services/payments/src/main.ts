import { runService } from '@granary/shared/service/run';
import { paymentsConfig } from './config';
import { showGasAccounts } from './seed-command';
import { paymentsSchema, startPayments } from './service';

void runService('payments', paymentsConfig, process.env, startPayments, paymentsSchema, { seed: showGasAccounts });
