import { loadService } from '@granary/shared/rpc/protos';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { callersByPath } from '@granary/shared/rpc/access';
import { dataAccess } from './access';

test('every method of the data service has a permitted caller', () => {
  const callers = callersByPath([{ definition: loadService<DataDefinition>('data', 'Data'), access: dataAccess }]);
  expect([...callers].filter(([, services]) => services.size === 0)).toEqual([]);
});
