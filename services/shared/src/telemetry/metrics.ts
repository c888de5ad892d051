/**
 * Metrics of this process, in the text format of Prometheus. What happens on the hot path is counted by objects that
 * are looked up beforehand (`with`) and cost a few nanoseconds; what can be asked for is asked when somebody scrapes.
 * The values of labels come from tables of the code (routes, methods, names of consumers), never from what a user
 * sends, so that there is a bound on how many series there are.
 */
export interface Family {
  name: string;
  help: string;
  labels: readonly string[];
}

/** One line of a metric that is asked for: the values of its labels, in order, and its value. */
export type Sample = readonly [labels: readonly string[], value: number];

type Lines = (into: string[]) => void;

/** Asked at each scrape, at the same time as the others. What it has not answered in time is left out. */
export interface Source {
  families: ReadonlyArray<Family & { type: 'gauge' | 'counter' }>;
  /** By the name of the family. */
  collect(): Promise<Readonly<Record<string, readonly Sample[]>>> | Readonly<Record<string, readonly Sample[]>>;
}

/** From half a millisecond, what a short read takes, to the longest that a request may take. */
export const durationBuckets = [
  ...[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
] as const;

const recorded = new Map<string, { family: Family; type: string; lines: Lines }>();
const sources = new Set<Source>();
/** A source that takes longer, a database that does not answer, does not hold up the scrape. */
const collectTimeoutMs = 2_000;

export class Counter {
  value = 0;

  add(amount = 1): void {
    this.value += amount;
  }
}

/** Counts of what was observed, by upper bounds. */
export class Histogram {
  private readonly counts: number[];
  private sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    // One more for what lies above all bounds.
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
    const rest = labels === '' ? '' : `,${labels}`;
    let total = 0;
    for (const [at, count] of this.counts.entries()) {
      total += count;
      into.push(`${name}_bucket{le="${this.bounds[at] ?? '+Inf'}"${rest}} ${total}`);
    }
    const own = labels === '' ? '' : `{${labels}}`;
    into.push(`${name}_sum${own} ${this.sum}`, `${name}_count${own} ${total}`);
  }
}

/** The series of a metric, each made when it is first asked for. Keep what `with` gives where it is needed often. */
export interface Series<T> {
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

/** A number that goes up and down where things happen. */
export function gauges(family: Family): Series<Counter> {
  return series(
    family,
    'gauge',
    () => new Counter(),
    ({ value }, labels, into) => into.push(line(family.name, labels, value)),
  );
}

function series<T>(
  family: Family,
  type: string,
  make: () => T,
  write: (one: T, labels: string, into: string[]) => void,
): Series<T> {
  if (recorded.has(family.name)) throw new Error(`the metric ${family.name} is there already`);
  const made = new Map<string, T>();
  const lines: Lines = (into) => {
    for (const [labels, one] of made) write(one, labels, into);
  };
  recorded.set(family.name, { family, type, lines });
  return {
    with: (...values) => {
      const labels = labelText(family.labels, values);
      const known = made.get(labels);
      if (known) return known;
      const one = make();
      made.set(labels, one);
      return one;
    },
  };
}

/** Has a source asked at each scrape until what it returns is called. Several may have parts of the same families. */
export function addSource(source: Source): () => void {
  sources.add(source);
  return () => void sources.delete(source);
}

/** All metrics as Prometheus reads them. */
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
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Record<string, never>>((resolve) => {
    timer = setTimeout(() => resolve({}), collectTimeoutMs);
  });
  try {
    return { source, found: await Promise.race([source.collect(), late]) };
  } catch {
    // That a database is away is said by health and by the log.
    return { source, found: {} as Readonly<Record<string, readonly Sample[]>> };
  } finally {
    clearTimeout(timer);
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
