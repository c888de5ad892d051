import { StartError } from '../start-error';
import { lockMigrations } from './migrate';
import { row, rows, type Pool } from './pool';
import { sql } from './sql';
import { retriedTransaction } from './transaction';

/** A table or the like, and the statements that it lacks. */
interface Change {
  statements: string[];
}

/**
 * Gives the role of a service its rights on what this role, the owner, has migrated: the rights that the owner itself
 * has on each table and sequence, so that a right that a migration has revoked from the owner binds the service too.
 * Tables, sequences and functions that the service's role owns, from the time when it migrated by itself, become the
 * owner's. Repeatable, without a moment in which a running service lacks a right. Throws a StartError when the role
 * does not exist, or is this role itself.
 */
export async function grantRights(pool: Pool, role: string): Promise<void> {
  await assertOtherRole(pool, role);
  for (const { statements } of await missingRights(pool, role)) {
    await retriedTransaction(pool, async (tx) => {
      await lockMigrations(tx);
      for (const statement of statements) await tx.query(statement);
    });
  }
}

async function assertOtherRole(pool: Pool, role: string): Promise<void> {
  const otherRole = await row<{ isOwn: boolean; mayAlterItsTables: boolean }>(
    pool,
    sql`select oid = current_user::regrole as "isOwn", pg_has_role(current_user, oid, 'usage') as "mayAlterItsTables"
        from pg_roles where rolname = ${role}`,
  );
  if (!otherRole) throw new StartError(`SERVICE_ROLE: Postgres has no role ${role}`);
  if (otherRole.isOwn)
    throw new StartError('SERVICE_ROLE: the role that migrates must be another one than that of the service');
  if (!otherRole.mayAlterItsTables) {
    throw new StartError(`SERVICE_ROLE: grant ${role} to the role that migrates, as deploy/postgres.sql does`);
  }
}

/**
 * Only the command `migrate` writes the list of applied migrations. Sequences of identity columns follow their tables.
 */
async function missingRights(pool: Pool, role: string): Promise<Change[]> {
  return rows<Change>(
    pool,
    sql`with role as (select oid, quote_ident(rolname) as name from pg_roles where rolname = ${role}),
    object as (
      select case c.relkind when 'S' then 'sequence' when 'c' then 'type' else 'table' end as kind,
        c.oid::regclass::text as name, c.relowner as owner,
        coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)) as acl,
        case when c.relkind = 'c' then '{}' when c.relname = 'migration' then '{SELECT}'
          else '{SELECT,INSERT,UPDATE,DELETE,USAGE}' end::text[] as granted
      from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'c')
        and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i')
      union all
      select 'routine', p.oid::regprocedure::text, p.proowner, null, '{}'
      from pg_proc p where p.pronamespace = current_schema()::regnamespace
    ),
    rights as (
      select o.kind, o.name, o.owner = role.oid as is_adopted, role.name as role,
        array(select a.privilege_type from aclexplode(o.acl) a
          where a.grantee = o.owner and a.privilege_type = any (o.granted)) as wanted,
        array(select a.privilege_type from aclexplode(o.acl) a
          where a.grantee = role.oid and o.owner <> role.oid) as had
      from object o, role
    ),
    change as (
      select kind, name, role, is_adopted,
        array_to_string(array(select unnest(wanted) except select unnest(had)), ', ') as missing,
        array_to_string(array(select unnest(had) except select unnest(wanted)), ', ') as surplus
      from rights
    )
    select array_remove(array[
      case when is_adopted then format('alter %s %s owner to current_user', kind, name) end,
      case when surplus <> '' then format('revoke %s on %s %s from %s', surplus, kind, name, role) end,
      case when missing <> '' then format('grant %s on %s %s to %s', missing, kind, name, role) end
    ], null) as statements
    from change where is_adopted or missing <> '' or surplus <> '' order by kind, name`,
  );
}

/** The tables of this database that the role of the connection may not read. */
export async function unreadableTables(pool: Pool): Promise<string[]> {
  const tables = await rows<{ name: string }>(
    pool,
    sql`select relname as name from pg_class where relnamespace = current_schema()::regnamespace
          and relkind in ('r', 'p') and not has_table_privilege(oid, 'select') order by 1`,
  );
  return tables.map(({ name }) => name);
}
