import { within } from '../concurrency/within';

/**
 * Metrics of this process, in the Prometheus text format. Hot paths keep the series that `with` returns; updating one
 * takes a few nanoseconds, where an instrument of the OpenTelemetry SDK takes 0.7 µs (ADR 0014). Values that can be
 * read at any time are collected at each scrape. The values of labels come from tables in the code (routes, methods,
 * names of consumers), never from user input, so the number of series is bounded.
 */
export interface Family {
  name: string;
  help: string;
  labels: readonly string[];
}

/** One series of a collected metric: the values of its labels, in order, and its value. */
export type Sample = readonly [labels: readonly string[], value: number];

type Lines = (into: string[]) => void;

/**
 * Metrics that are collected at each scrape. All sources are read concurrently; one that fails or is late is omitted.
 */
export interface Source {
  families: ReadonlyArray<Family & { type: 'gauge' | 'counter' }>;
  /** Samples by the name of the family. */
  collect(): Promise<Readonly<Record<string, readonly Sample[]>>> | Readonly<Record<string, readonly Sample[]>>;
}

/** Seconds, from the duration of a short read to the longest that a request may take. */
export const durationBuckets = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

const recorded = new Map<string, { family: Family; type: string; lines: Lines }>();
const sources = new Set<Source>();
/** Limit for each source, so that a database that does not answer does not delay the scrape. */
const collectTimeoutMs = 2_000;

export class Counter {
  value = 0;

  add(amount = 1): void {
    this.value += amount;
  }
}

/** A value that goes up and down. */
export class Gauge {
  value = 0;
}

/** Counts observations in buckets with these upper bounds. */
export class Histogram {
  private readonly counts: number[];
  private sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    // The last one is the bucket +Inf.
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    const { bounds, counts } = this;
    let at = 0;
    while (at < bounds.length && value > bounds[at]!) at++;
    counts[at]! += 1;
    this.sum += value;
  }

  lines(name: string, labels: string, into: string[]): void {
    const otherLabels = labels === '' ? '' : `,${labels}`;
    let total = 0;
    for (const [at, count] of this.counts.entries()) {
      total += count;
      into.push(`${name}_bucket{le="${this.bounds[at] ?? '+Inf'}"${otherLabels}} ${total}`);
    }
    const own = labels === '' ? '' : `{${labels}}`;
    into.push(`${name}_sum${own} ${this.sum}`, `${name}_count${own} ${total}`);
  }
}

/** The series of a metric, by the values of its labels. */
export interface Series<T> {
  /** Creates the series on first use. Hot paths keep the result, for this looks it up by the text of the labels. */
  with(...values: string[]): T;
}

export function counters(family: Family): Series<Counter> {
  return series(
    family,
    'counter',
    () => new Counter(),
    ({ value }, labels, into) => into.push(line(family.name, labels, value)),
  );
}

export function histograms(family: Family, bounds: readonly number[] = durationBuckets): Series<Histogram> {
  return series(
    family,
    'histogram',
    () => new Histogram(bounds),
    (histogram, labels, into) => histogram.lines(family.name, labels, into),
  );
}

export function gauges(family: Family): Series<Gauge> {
  return series(
    family,
    'gauge',
    () => new Gauge(),
    ({ value }, labels, into) => into.push(line(family.name, labels, value)),
  );
}

function series<T>(
  family: Family,
  type: string,
  create: () => T,
  write: (one: T, labels: string, into: string[]) => void,
): Series<T> {
  if (recorded.has(family.name)) throw new Error(`the metric ${family.name} exists already`);
  const byLabels = new Map<string, T>();
  const lines: Lines = (into) => {
    for (const [labels, one] of byLabels) write(one, labels, into);
  };
  recorded.set(family.name, { family, type, lines });
  return {
    with: (...values) => {
      const labels = labelText(family.labels, values);
      const known = byLabels.get(labels);
      if (known) return known;
      const one = create();
      byLabels.set(labels, one);
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
  const into: string[] = [];
  for (const { family, type, lines } of recorded.values()) {
    head(family, type, into);
    lines(into);
  }
  const collected = await Promise.all([...sources].map(collect));
  const gathered = new Map<string, { family: Family; type: string; samples: Sample[] }>();
  for (const { source, found } of collected) {
    for (const family of source.families) {
      const entry = gathered.get(family.name) ?? { family, type: family.type, samples: [] };
      gathered.set(family.name, entry);
      entry.samples.push(...(found[family.name] ?? []));
    }
  }
  for (const { family, type, samples } of gathered.values()) {
    head(family, type, into);
    for (const [values, value] of samples) into.push(line(family.name, labelText(family.labels, values), value));
  }
  return `${into.join('\n')}\n`;
}

async function collect(source: Source) {
  const nothing: Readonly<Record<string, readonly Sample[]>> = {};
  try {
    return { source, found: (await within(collectTimeoutMs, source.collect())) ?? nothing };
  } catch {
    // Health and the log report why, for example that a database is away.
    return { source, found: nothing };
  }
}

function head({ name, help }: Family, type: string, into: string[]): void {
  into.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
}

const line = (name: string, labels: string, value: number) => `${name}${labels === '' ? '' : `{${labels}}`} ${value}`;

function labelText(names: readonly string[], values: readonly string[]): string {
  return names.map((name, at) => `${name}="${escaped(values[at] ?? '')}"`).join(',');
}

const escaped = (value: string) => value.replace(/[\\"\n]/g, (found) => (found === '\n' ? '\\n' : `\\${found}`));
