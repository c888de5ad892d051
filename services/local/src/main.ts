import { logLevelOf } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/service/lifecycle';
import { createRootLogger } from '@granary/shared/logger';
import { startLocal } from './service';
import { withPlayMoney } from './start/play-money';
import { readSettings, startLauncher } from './start/settings';

const log = createRootLogger(logLevelOf(process.env, 'warn'));

void runUntilSignalled(log.child({ service: 'local' }), () => {
  const { own: launcherConfig, services, warnings } = readSettings(startLauncher, process.env);
  for (const warning of warnings) console.error(`Warning: ${warning}`);
  return startLocal({
    config: launcherConfig,
    environment: withPlayMoney(services),
    log,
    say: (line) => console.log(line),
  });
});
