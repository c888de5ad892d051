import { Agent, type AgentOptions } from 'node:https';
import type { Duplex } from 'node:stream';
import type { ConnectionOptions } from 'node:tls';
import type { PemFiles } from '@granary/shared/trust/pem-files';

/** An agent whose new connections use what the PEM files hold then. */
export class RenewingAgent extends Agent {
  constructor(
    options: AgentOptions,
    private readonly files: PemFiles,
  ) {
    // A session that is resumed would not be checked against new authorities.
    super({ ...options, maxCachedSessions: 0 });
  }

  override createConnection(
    options: ConnectionOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    return super.createConnection({ ...options, ...this.files.current() }, callback);
  }
}
