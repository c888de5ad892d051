import { Counter as PromCounter, Gauge as PromGauge, Histogram as PromHistogram, Registry } from 'prom-client';
import { within } from '../concurrency/within';

/**
 * Metrics of this process, in the Prometheus text format, by `prom-client`. Hot paths keep the series that `with`
 * returns. Values that can be read at any time are collected at each scrape. The values of labels come from tables in
 * the code (routes, methods, names of consumers), never from user input, so the number of series is bounded.
 */
export interface Family {
  name: string;
  help: string;
  labels: readonly string[];
}

/** One series of a collected metric: the values of its labels, in order, and its value. */
export type Sample = readonly [labels: readonly string[], value: number];

type Samples = Readonly<Record<string, readonly Sample[]>>;

/**
 * Metrics that are collected at each scrape. All sources are read concurrently; one that fails or is late is omitted.
 */
export interface Source {
  families: ReadonlyArray<Family & { type: 'gauge' | 'counter' }>;
  /** Samples by the name of the family. */
  collect(): Promise<Samples> | Samples;
}

/** Seconds, from the duration of a short read to the longest that a request may take. */
export const durationBuckets = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

const registry = new Registry();
const sources = new Set<Source>();
/** Limit for each source, so that a database that does not answer does not delay the scrape. */
const collectTimeoutMs = 2_000;

/** A sum that only grows. To add to one of `prom-client` costs ten times as much, so that gets the sum at a scrape. */
export class Counter {
  private sum = 0;

  inc(by = 1): void {
    this.sum += by;
  }

  /** The sum, which begins at zero again. */
  take(): number {
    const { sum } = this;
    this.sum = 0;
    return sum;
  }
}

/** A value that goes up and down. */
export class Gauge {
  value = 0;

  set(value: number): void {
    this.value = value;
  }

  inc(by = 1): void {
    this.value += by;
  }

  dec(by = 1): void {
    this.value -= by;
  }
}

/** Counts observations in buckets. */
export type Histogram = PromHistogram.Internal<string>;

/** The series of a metric, by the values of its labels. */
export interface Series<T> {
  /**
   * Returns the series, which is zero until it is updated. Hot paths keep the result, for this looks it up by the text
   * of the labels.
   */
  with(...values: string[]): T;
}

export function counters(family: Family): Series<Counter> {
  const all = new Map<Counter, PromCounter.Internal>();
  const collect = () => {
    for (const [counter, kept] of all) kept.inc(counter.take());
  };
  const metric = new PromCounter({ ...optionsOf(family, registry), collect });
  return series((values) => {
    const counter = new Counter();
    all.set(counter, metric.labels(...values));
    return counter;
  });
}

export function gauges(family: Family): Series<Gauge> {
  const all = new Map<Gauge, PromGauge.Internal<string>>();
  const collect = () => {
    for (const [gauge, kept] of all) kept.set(gauge.value);
  };
  const metric = new PromGauge({ ...optionsOf(family, registry), collect });
  return series((values) => {
    const gauge = new Gauge();
    all.set(gauge, metric.labels(...values));
    return gauge;
  });
}

/** `bounds` are the upper bounds of its buckets. */
export function histograms(family: Family, bounds: readonly number[] = durationBuckets): Series<Histogram> {
  const metric = new PromHistogram({ ...optionsOf(family, registry), buckets: [...bounds] });
  return series((values) => {
    metric.zero(Object.fromEntries(family.labels.map((label, index) => [label, values[index] ?? ''])));
    return metric.labels(...values);
  });
}

const optionsOf = ({ name, help, labels }: Family, target: Registry) => ({
  name,
  help,
  labelNames: [...labels],
  registers: [target],
});

/** Creates each series once: a second one of the same labels would begin at zero. */
function series<T>(create: (values: string[]) => T): Series<T> {
  const byLabels = new Map<string, T>();
  return {
    with: (...values) => {
      const key = values.join('\n');
      let one = byLabels.get(key);
      if (one === undefined) byLabels.set(key, (one = create(values)));
      return one;
    },
  };
}

/**
 * Collects from a source at each scrape until the returned function is called. Several sources may contribute series to
 * the same family.
 */
export function addSource(source: Source): () => void {
  sources.add(source);
  return () => void sources.delete(source);
}

/** All metrics in the text format, version 0.0.4. */
export async function renderMetrics(): Promise<string> {
  const collected = new Registry();
  const gathered = await Promise.all([...sources].map(collect));
  for (const { source, samples } of gathered) {
    for (const family of source.families) {
      for (const [values, value] of samples[family.name] ?? []) {
        // A family without a sample is left out: without labels, it would show a zero that nobody has collected.
        const metric = collected.getSingleMetric(family.name) ?? newMetric(family, collected);
        (metric as PromCounter | PromGauge).labels(...values).inc(value);
      }
    }
  }
  return `${await registry.metrics()}\n${await collected.metrics()}`;
}

function newMetric(family: Source['families'][number], target: Registry): PromCounter | PromGauge {
  const options = optionsOf(family, target);
  return family.type === 'counter' ? new PromCounter(options) : new PromGauge(options);
}

async function collect(source: Source): Promise<{ source: Source; samples: Samples }> {
  try {
    return { source, samples: (await within(collectTimeoutMs, source.collect())) ?? {} };
  } catch {
    // Health and the log report why, for example that a database is away.
    return { source, samples: {} };
  }
}
