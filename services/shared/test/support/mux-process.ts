import { appendFileSync, readFileSync } from 'node:fs';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { loadService } from '@granary/shared/rpc/protos';
import { startServer } from '@granary/shared/grpc/server';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { createLogger } from '@granary/shared/logger';

// A service that a test kills. A store has its effect (a line in the file), unless the file says that it had it before;
// `silent` ones never answer anything. Says to its parent where it listens, and how many calls have arrived.
const [, , file, manner] = process.argv;

const answer = async <T>(response: T): Promise<T> => {
  process.send!({ arrived: 1 });
  return manner === 'silent' ? new Promise<never>(() => {}) : response;
};
const handlers = {
  ...Object.fromEntries(
    Object.keys(loadService('data', 'Data')).map((name) => [
      name[0]!.toLowerCase() + name.slice(1),
      () => answer({ json: Buffer.from('[]') }),
    ]),
  ),
  store: ({ ticketId }: { ticketId: string }) => {
    if (!readFileSync(file!, 'utf8').split('\n').includes(ticketId)) appendFileSync(file!, `${ticketId}\n`);
    return answer({ ticketId, resultsJson: Buffer.from('[]') });
  },
};
const data = { definition: loadService<DataDefinition>('data', 'Data'), handlers } as unknown as Implementation;
void startServer('127.0.0.1:0', [data], createLogger('stream-test', 'silent')).then(({ address }) =>
  process.send!({ address }),
);
process.on('disconnect', () => process.exit());
