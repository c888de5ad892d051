import { runService } from '@granary/shared/service/run';
import { paymentsConfig } from './config';
import { startPayments } from './service';

void runService('payments', paymentsConfig, process.env, startPayments);
