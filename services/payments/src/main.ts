import { runService } from '@granary/shared/run-service';
import { paymentsConfig } from './config';
import { startPayments } from './service';

void runService('payments', paymentsConfig, process.env, startPayments);
