import { ConfigError } from '../config';
import { healthy, type Check } from '../health/check';
import { row, type Pool, type Queryable } from './pool';
import { sql } from './sql';

/**
 * The database's clock. Times that are stored and later decide something (retention, payments, the age of uploads) come
 * from this clock: machines may disagree, and one wrong clock must not purge or charge.
 */
export interface DatabaseClock {
  /** The database's time, without a round trip: as last measured, carried on by the monotonic clock of this process. */
  now: () => Date;
  /** The health check: degraded when the clock of this process differs. */
  check: Check;
  stop(): void;
}

const measuredEveryMs = 5_000;
/** A start refuses a larger difference: what services send to each other expires within minutes. */
const differenceMaxMs = 5 * 60_000;
/** Health reports a larger difference. */
const differenceSeenMs = 10_000;

interface Measured {
  /** The number to add to `performance.now()` for the database's time. */
  offsetMs: number;
  /** The amount by which `offsetMs` may be wrong. */
  errorMs: number;
}

/** The database's time now, by a round trip. */
export async function databaseTime(db: Queryable): Promise<Date> {
  return (await row<{ at: Date }>(db, sql`select clock_timestamp() as at`))!.at;
}

/**
 * Measures the database's clock, now and every few seconds. Throws a ConfigError when that of this process differs
 * much.
 */
export async function openDatabaseClock(pool: Pool): Promise<DatabaseClock> {
  let measured = await measure(pool);
  const now = () => new Date(performance.now() + measured.offsetMs);
  const differenceMs = () => Date.now() - now().getTime();
  if (Math.abs(differenceMs()) > differenceMaxMs)
    throw new ConfigError(`${describe(differenceMs())}. Set both clocks, by NTP for example, and start again.`);
  const timer = setInterval(() => {
    measure(pool).then(
      (next) => {
        // A measurement that agrees within the errors is no news, and would make the time jump to and fro.
        const isNews = Math.abs(next.offsetMs - measured.offsetMs) > next.errorMs + measured.errorMs;
        if (isNews || next.errorMs < measured.errorMs) measured = next;
      },
      // The database is away, which its own check says; the clock goes on meanwhile.
      () => undefined,
    );
  }, measuredEveryMs);
  timer.unref();
  return {
    now,
    check: async () => {
      const ms = differenceMs();
      return Math.abs(ms) > differenceSeenMs ? { status: 'DEGRADED', message: describe(ms) } : healthy;
    },
    stop: () => clearInterval(timer),
  };
}

async function measure(pool: Pool): Promise<Measured> {
  const askedMs = performance.now();
  const time = await databaseTime(pool);
  const answeredMs = performance.now();
  return { offsetMs: time.getTime() - (askedMs + answeredMs) / 2, errorMs: (answeredMs - askedMs) / 2 + 1 };
}

function describe(differenceMs: number): string {
  const seconds = Math.round(Math.abs(differenceMs) / 1_000);
  const by = seconds < 120 ? `${seconds} s` : seconds < 7_200 ? `${Math.round(seconds / 60)} minutes` : hours(seconds);
  return `The clock of this process is ${by} ${differenceMs > 0 ? 'ahead of' : 'behind'} that of the database`;
}

const hours = (seconds: number): string =>
  seconds < 172_800 ? `${Math.round(seconds / 3_600)} hours` : `${Math.round(seconds / 86_400)} days`;
