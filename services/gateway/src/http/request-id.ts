import { newId } from '@granary/shared/ids';

export function newRequestId(): string {
  return newId('');
}
