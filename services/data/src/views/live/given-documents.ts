import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import { compileProjection, project, type Projection } from '../../json/project';
import { int4Array, int8Array, textArray } from '@granary/shared/postgres/wire/binary';
import type { DocumentRow } from '../../commit/plan';
import { pathsOf } from '../../query/language/condition';
import type { GivenDocuments } from './changes';
import type { LivePlan } from './live-plan';

/**
 * The members of a document that decide its part in grouped views: so much less is sent to Postgres, and parsed there.
 */
export function membersOf(plans: readonly LivePlan[]): Projection {
  const names = new Set<string>();
  for (const { query } of plans) {
    const { by = [], aggregates = [] } = query.groups ?? {};
    const paths = [...pathsOf(query.find), ...by, ...aggregates.map(({ path }) => path)];
    for (const path of paths) if (path) names.add(path[0]!);
  }
  // A select reads other names as places in an array, or refuses them.
  if (![...names].every((name) => /^[A-Za-z_$][^.]*$/.test(name))) return 'all';
  return compileProjection(names.size === 0 ? ['id'] : [...names]);
}

/** The visible ones of new documents, as parameters. */
export const givenDocuments = (rows: readonly DocumentRow[], members: Projection): Promise<GivenDocuments> =>
  runSliced(givenTask(rows, members));

function* givenTask(rows: readonly DocumentRow[], members: Projection): Task<GivenDocuments> {
  const visible = rows.filter(({ document }) => !document.deleted);
  const texts: Buffer[] = [];
  for (const { document } of visible) {
    texts.push(project(document.text.subarray(document.start, document.end), members));
    yield;
  }
  return {
    ids: textArray(visible.map(({ document }) => document.id)),
    texts: textArray(texts),
    ordinals: int8Array(visible.map(({ ordinal }) => ordinal)),
    places: int4Array(visible.map(({ place }) => place)),
  };
}
