import { wrongConfig } from '../config';

type AddressIn<C> = Extract<keyof C, `${string}_ADDRESS`>;

/** Collects the addresses of other services that a start needs, so that one error names all that are missing. */
export class RequiredAddresses<C extends object> {
  readonly #missing: string[] = [];

  constructor(private readonly config: C) {}

  /** The address in a setting; a missing one is noted. */
  of(name: AddressIn<C>): { address: string } {
    const address = this.config[name] as string | undefined;
    if (address === undefined) this.#missing.push(name);
    return { address: address ?? '' };
  }

  /** Throws a ConfigError that names the settings which are missing. */
  assertComplete(): void {
    if (this.#missing.length > 0) throw wrongConfig(this.#missing.map((name) => [name, 'is missing']));
  }
}
