import { LRUCache } from 'lru-cache';

/** The limit of entries: more than there are endpoints of one kind. */
const endpointsMax = 1_000;

/** The endpoints that failed lately, by their names: others are preferred to them for `cooldownMs`. */
export class Cooldowns {
  private readonly failed: LRUCache<string, true>;

  constructor(cooldownMs: number) {
    this.failed = new LRUCache({ max: endpointsMax, ttl: cooldownMs });
  }

  /** The endpoint has failed now. */
  begin(name: string): void {
    this.failed.set(name, true);
  }

  has(name: string): boolean {
    return this.failed.has(name);
  }

  /** All of them, those that failed lately last; otherwise in their order. */
  order<T>(endpoints: readonly T[], nameOf: (endpoint: T) => string): T[] {
    if (this.failed.size === 0) return [...endpoints];
    const isCoolingDown = (endpoint: T) => this.failed.has(nameOf(endpoint));
    return [...endpoints.filter((endpoint) => !isCoolingDown(endpoint)), ...endpoints.filter(isCoolingDown)];
  }
}
