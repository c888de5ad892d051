import type { z } from 'zod';
import type { Scheme } from '../networks/scheme';
import { cosmos } from './cosmos/scheme';
import { evm } from './evm/scheme';
import { simulated } from './simulated/scheme';
import { solana } from './solana/scheme';

/** All schemes, in the order in which their payments are offered. */
const all = [cosmos, simulated, evm, solana] as const;

export const schemes: readonly Scheme[] = all;

/** The intersection of the settings of a union of schemes. */
type SettingsOf<S> = (S extends Scheme<infer T> ? (settings: T) => void : never) extends (settings: infer I) => void
  ? I
  : never;

/** The settings of all schemes. */
export const schemeSettings = Object.assign({}, ...all.map(({ settings }): z.ZodRawShape => settings)) as SettingsOf<
  (typeof all)[number]
>;

/** The scheme of a network; undefined: no scheme has such networks. */
export const schemeOf = (network: string): Scheme | undefined => schemes.find((scheme) => scheme.takes(network));
