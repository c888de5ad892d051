import { forbidden } from '@granary/shared/errors';
import type { PayLimits } from '@granary/shared/gen/granary/data/v1/PayLimits';
import type { WalletSignature } from './wallet-signature';

export const permissions = ['Read', 'Write', 'Admin', 'Pay'] as const;
export type Permission = (typeof permissions)[number];

/** The callers that may use a route. */
export type Access =
  /** Anyone; keys are ignored. */
  | { kind: 'public' }
  /**
   * Anyone; a valid key of the path's app with Read may read private data too, and the wallet of its owner. `keyFirst`:
   * most of it needs the key, which examples show.
   */
  | { kind: 'reader'; keyFirst?: true }
  /**
   * A key with this permission, of the app in the path or, where the path names none, of any; or the wallet of its
   * owner.
   */
  | { kind: 'app'; permission: Permission; operator?: true }
  | { kind: 'operator' }
  /** The wallet of the address in the path, by signature, or the operator. */
  | { kind: 'wallet' };

export interface AppCaller {
  kind: 'app';
  keyId: string;
  /** A regenerated key keeps its name. */
  keyName: string;
  appId: string;
  appNumber: string;
  permissions: ReadonlySet<string>;
  /** The payment limits of a key with Pay. */
  payLimits?: PayLimits;
  /** The signature of the owner, who acts without a key. */
  signature?: WalletSignature;
}
export interface Operator {
  kind: 'operator';
}
export interface Anonymous {
  kind: 'anonymous';
}
export interface Wallet {
  kind: 'wallet';
  address: string;
  signature: WalletSignature;
}
/** The callers that a route with the access `reader` sees. */
export type AnyReader = AppCaller | Operator | Anonymous;
export type Caller = AppCaller | Operator | Anonymous | Wallet;

/** The callers that a route with this access can see. */
export type CallerOf<A extends Access> = A extends { kind: 'app'; operator: true }
  ? AppCaller | Operator
  : A extends { kind: 'app' }
    ? AppCaller
    : A extends { kind: 'reader' }
      ? AnyReader
      : A extends { kind: 'operator' }
        ? Operator
        : A extends { kind: 'wallet' }
          ? Wallet | Operator
          : Anonymous;

/** Admin includes all permissions but Pay, which must be given explicitly. */
export function hasPermission(caller: AppCaller, permission: Permission): boolean {
  return caller.permissions.has(permission) || (permission !== 'Pay' && caller.permissions.has('Admin'));
}

/**
 * Throws FORBIDDEN unless the caller has the permission; for requests that need more than the permission of their
 * route.
 */
export function requirePermission(caller: AppCaller, permission: Permission): void {
  if (!hasPermission(caller, permission)) throw forbidden(`The key lacks the permission ${permission}`);
}

/** Whether a caller may make private data public. */
export const mayPublish = (caller: AppCaller): boolean => hasPermission(caller, 'Admin');

/** Whether a caller may read what is private in an app. */
export const mayReadPrivate = (caller: AnyReader, appId: string): boolean =>
  caller.kind === 'operator' || (caller.kind === 'app' && caller.appId === appId && hasPermission(caller, 'Read'));
