import { runService } from '@granary/shared/service/run';
import { gatewayConfig } from './config';
import { startGateway } from './service';

void runService('gateway', gatewayConfig, process.env, startGateway);
