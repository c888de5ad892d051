import { ServiceError } from '@granary/shared/errors';
import type { UseSignatureRequest } from '@granary/shared/gen/granary/data/v1/UseSignatureRequest';
import type { UseSignatureResponse } from '@granary/shared/gen/granary/data/v1/UseSignatureResponse';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { FastContext } from '../postgres/databases';

export const SIGNATURE_USED = 'SIGNATURE_USED';

/** How long a signature is kept: the five minutes in which a gateway takes it, and by how much clocks may differ. */
const keptSeconds = 900;
/** Rows that one statement deletes. */
const forgottenAtOnce = 1_000;

/**
 * Uses a signature for the request `use_id`, which may ask again; it is committed when this resolves. Throws
 * SIGNATURE_USED for another request, and for a signature that is too old to be known.
 */
export async function useSignature({ fast }: FastContext, request: UseSignatureRequest): Promise<UseSignatureResponse> {
  const { signature, signedAtSeconds, useId } = request;
  const used = await execute(
    fast,
    sql`insert into used_signature as u (signature, use_id, forget_at)
        select ${signature}::bytea, ${useId}::uuid, forget_at
        from (select to_timestamp(${signedAtSeconds}::int8 + ${keptSeconds}::int8)) signed (forget_at) where forget_at > now()
        on conflict (signature) do update set use_id = excluded.use_id where u.use_id = excluded.use_id`,
  );
  if (used === 1) return {};
  const message = 'The signature was used already: sign the request again, with the time of now';
  throw new ServiceError('FAILED_PRECONDITION', SIGNATURE_USED, message);
}

/** Deletes the signatures that no gateway takes any more. `stopping` ends it between two statements. */
export async function forgetSignatures(pool: Pool, stopping: AbortSignal): Promise<void> {
  let deleted: number;
  do {
    deleted = await execute(
      pool,
      sql`delete from used_signature where signature in
            (select signature from used_signature where forget_at <= now() order by forget_at limit ${forgottenAtOnce})`,
    );
  } while (deleted === forgottenAtOnce && !stopping.aborted);
}
