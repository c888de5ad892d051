import { runService } from '@granary/shared/run-service';
import { gatewayConfig } from './config';
import { startGateway } from './service';

void runService('gateway', gatewayConfig, process.env, startGateway);
