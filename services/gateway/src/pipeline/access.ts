export const permissions = ['Read', 'Write', 'Admin', 'Pay'] as const;
export type Permission = (typeof permissions)[number];

/** Who may use a route. */
export type Access =
  /** Anyone; keys are not looked at. */
  | { kind: 'public' }
  /** Anyone; a valid key of the path's app, with Read, sees what is private too. */
  | { kind: 'reader' }
  /** A key with this permission, of the app in the path or, where the path names none, of any. */
  | { kind: 'app'; permission: Permission; operator?: true }
  | { kind: 'operator' }
  /** The wallet of the address in the path, by signature, or the operator. */
  | { kind: 'wallet' };

export interface AppCaller {
  kind: 'app';
  keyId: string;
  /** A key that is made anew keeps its name. */
  keyName: string;
  appId: string;
  appNumber: string;
  permissions: ReadonlySet<string>;
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
}
/** Who a route with the access `reader` sees. */
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

/** Admin includes everything but Pay, which is about money and given by name. */
export function hasPermission(caller: AppCaller, permission: Permission): boolean {
  return caller.permissions.has(permission) || (permission !== 'Pay' && caller.permissions.has('Admin'));
}

/** Whether a caller may make public what is private, and show it in public. */
export const mayPublish = (caller: AppCaller): boolean => hasPermission(caller, 'Admin');
