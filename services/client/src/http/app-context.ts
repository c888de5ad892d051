import { GranaryError } from '../errors.ts';
import type { Feature } from './answers.ts';
import type { Transport } from './transport.ts';

/** An app as its parts see it. */
export interface AppContext {
  transport: Transport;
  appId: string;
  /** Reads are those of everybody: there is no key of the app. */
  isPublic: boolean;
}

/** The path of an app, or of something in it. Throws GranaryError with VALIDATION_FAILED for names that no path has. */
export const appPath = ({ appId }: Pick<AppContext, 'appId'>, ...segments: string[]): string =>
  `/api/apps/${[appId, ...segments].map(pathSegment).join('/')}`;

/** A name in a path. A URL would take `.` and `..` for steps, which lead to something else, and drop what is empty. */
export function pathSegment(name: string): string {
  if (!['', '.', '..'].includes(name)) return encodeURIComponent(name);
  throw new GranaryError(`"${name}" is not an id or a name`, { code: 'VALIDATION_FAILED' });
}

/** The release that has what 0.1.0 does not. */
const since = '0.2.0';

export const features = {
  changes: { name: 'a change feed', since },
  export: { name: 'exports', since },
  import: { name: 'imports', since },
} satisfies Record<string, Feature>;
