import { callersOf, serviceNames, type ServiceName } from './services';
import { callKey, secretOf } from './token';

/**
 * The settings that let each service authenticate itself, with the keys of its own callers only: for launchers of
 * several processes. The secrets are derived from one that no service gets.
 */
export function trustEnvironments(rootSecret: string): Record<ServiceName, Record<string, string>> {
  const keyFrom = (caller: ServiceName, callee: ServiceName) =>
    callKey(secretOf(rootSecret, caller), caller, callee).export().toString('hex');
  const environment = (service: ServiceName): Record<string, string> => {
    const trusted = callersOf[service].map((caller) => `${caller}:${keyFrom(caller, service)}`);
    const isCaller = serviceNames.some((callee) => callersOf[callee].includes(service));
    return {
      ...(isCaller && { SERVICE_SECRET: secretOf(rootSecret, service) }),
      ...(trusted.length > 0 && { TRUSTED_CALLERS: trusted.join(',') }),
    };
  };
  return Object.fromEntries(serviceNames.map((service) => [service, environment(service)])) as Record<
    ServiceName,
    Record<string, string>
  >;
}
