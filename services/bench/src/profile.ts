import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Profiler } from 'node:inspector';
import { fileURLToPath } from 'node:url';

const root = path.join(__dirname, '../../..');
const functionsMax = 15;
const partsMax = 10;
/** V8's names for idle time. */
const idle = ['(idle)', '(root)'];

type Node = Profiler.ProfileNode;
type Frame = Node['callFrame'];

/** The members of a .cpuprofile that are read. */
interface Profile {
  nodes: Node[];
  samples: number[];
  timeDeltas: number[];
}

/**
 * Summarises a .cpuprofile as lines to print: the functions with the most self time, and the packages (including
 * services) with the time that Node spent on their behalf.
 */
export function profileLines(file: string): string[] {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(file, 'utf8')) as Profile;
  const selfUs = new Map<number, number>();
  samples.forEach((id, i) => {
    // The time between two samples is attributed to the first.
    selfUs.set(id, (selfUs.get(id) ?? 0) + (timeDeltas[i + 1] ?? 0));
  });
  const isBusy = ({ callFrame }: Node) => !idle.includes(callFrame.functionName);
  const totalOf = (some: Node[]) => some.reduce((sum, { id }) => sum + (selfUs.get(id) ?? 0), 0);
  const busy = nodes.filter(isBusy);
  const busyUs = totalOf(busy);
  const parts = partsOf(nodes);
  const largest = (nameOf: (node: Node) => string, max: number) => {
    const sums = new Map<string, number>();
    for (const node of busy) sums.set(nameOf(node), (sums.get(nameOf(node)) ?? 0) + (selfUs.get(node.id) ?? 0));
    const sorted = [...sums].sort((a, b) => b[1] - a[1]).slice(0, max);
    return sorted.map(([name, us]) => `  ${percent(us / busyUs).padStart(6)}  ${name}`);
  };
  return [
    `  busy ${percent(busyUs / totalOf(nodes))} of the time; of that, functions by themselves:`,
    ...largest(functionName, functionsMax),
    '  and packages with what Node does for them:',
    ...largest((node) => parts.get(node.id)!, partsMax),
  ];
}

/** The package of each node, by id: its own, or for a part of Node that of the caller. */
function partsOf(nodes: Node[]): Map<number, string> {
  const parts = new Map<number, string>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const walk = (node: Node, inherited: string) => {
    const part = packageOf(node.callFrame) ?? inherited;
    parts.set(node.id, part);
    for (const id of node.children ?? []) walk(byId.get(id)!, part);
  };
  walk(nodes[0]!, 'Node by itself');
  return parts;
}

function packageOf({ functionName, url }: Frame): string | undefined {
  if (functionName === '(garbage collector)') return functionName;
  if (url === '' || url.startsWith('node:')) return undefined;
  const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url) ?? [];
  return name ?? relativeTo(url).split('/').slice(0, 2).join('/');
}

function functionName({ callFrame: { functionName: name, url, lineNumber } }: Node): string {
  return `${name || '(anonymous)'}${url === '' ? '' : `  ${relativeTo(url)}:${lineNumber + 1}`}`;
}

function relativeTo(url: string): string {
  const file = url.startsWith('file://') ? fileURLToPath(url) : url;
  return path.isAbsolute(file) ? path.relative(root, file) : file;
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;
