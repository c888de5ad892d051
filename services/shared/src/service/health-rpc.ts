import type { HealthDefinition } from '../gen/granary/health/v1/Health';
import type { Part } from '../gen/granary/health/v1/Part';
import { loadService } from '../rpc/protos';
import type { Implementation } from '../rpc/implementation';
import { isTimeout } from '../postgres/errors';
import { row, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { cachedFor } from '../concurrency/ttl-cache';
import { Probe, type Look } from '../health/probe';
import { degraded, healthy, worst, type Check, type Finding } from '../health/check';
import type { AccessTo } from '../rpc/access';
import { version } from '../version';

export const healthDefinition = loadService<HealthDefinition>('health', 'Health');

/** The gateway reports the health of all services; probes of an orchestrator check the port. */
export const healthAccess = { gateway: '*' } satisfies AccessTo<HealthDefinition>;

/** A part without an answer for this long is late: the whole report must be complete within a second. */
const lateAfterMs = 700;
/** A report is cached this long, so that polling is cheap. */
const freshMs = 500;

/**
 * The Health service of a process, with its checks by name. A part that is late is degraded, and unhealthy only after
 * `unhealthyAfterMs` without an answer. Concurrent callers share one report.
 */
export function healthImplementation(
  checks: Record<string, Check>,
  unhealthyAfterMs: number,
): Implementation<HealthDefinition> {
  const limits = { answerMs: lateAfterMs, overdueMs: unhealthyAfterMs };
  const probes = Object.entries(checks).map(([name, check]) => [name, new Probe(check, limits, isTimeout)] as const);
  const look = cachedFor(freshMs, () => Promise.all(probes.map(([name, probe]) => examine(name, probe))));
  return {
    definition: healthDefinition,
    handlers: {
      check: async () => {
        const parts = await look();
        return { status: worst(parts.map((part) => part.status)), version, parts };
      },
    },
  };
}

async function examine(name: string, probe: Probe<Finding>): Promise<Part> {
  const look = await probe.look();
  const { status, message = '', servesReads = false } = findingOf(look);
  return { name, status, latencyMs: Math.round(look.latencyMs).toString(), message, servesReads };
}

function findingOf(look: Look<Finding>): Finding {
  switch (look.state) {
    case 'answered':
      if (look.latencyMs <= lateAfterMs || look.value.status !== 'HEALTHY') return look.value;
      return { status: 'DEGRADED', message: 'answers late' };
    case 'failed':
      return { status: 'UNHEALTHY', message: 'cannot be reached' };
    case 'late':
      return { status: 'DEGRADED', message: 'has not answered yet' };
    case 'overdue':
      return { status: 'UNHEALTHY', message: 'did not answer in time' };
  }
}

/**
 * Whether a database answers, accepts writes, and has them on a standby before they are acknowledged, if it has
 * standbys: those with a slot, and those that this role may see. With names of synchronous standbys a commit waits for
 * one of them.
 */
export function databaseCheck(pool: Pool): Check {
  return async () => {
    const database = await row<{ read_only: boolean; loses_writes: boolean }>(
      pool,
      // read_only is on in a standby, and where default_transaction_read_only is on. A base backup has a temporary
      // slot.
      sql`select current_setting('transaction_read_only')::boolean as read_only,
        (current_setting('synchronous_standby_names') = '' or current_setting('synchronous_commit') in ('local', 'off'))
          and (exists (select from pg_replication_slots where slot_type = 'physical' and active and not temporary)
            or exists (select from pg_stat_replication where state in ('streaming', 'catchup')
              and application_name not in ('pg_basebackup', 'pg_receivewal'))) as loses_writes`,
    );
    if (database?.read_only) {
      return { status: 'UNHEALTHY', message: 'is read-only: writes are refused', servesReads: true };
    }
    if (database?.loses_writes) {
      return degraded('has standbys and none is synchronous: a failover would lose acknowledged writes');
    }
    return healthy;
  };
}
