import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { droppedLogLines } from '../log-output';
import { version } from '../version';
import { addSource, type Source } from './metrics';

const seconds = (nanoseconds: number) => (Number.isFinite(nanoseconds) ? nanoseconds / 1e9 : 0);
const gauge = (name: string, help: string) => ({ name, help, labels: [], type: 'gauge' as const });

/** The metrics of a Node process under the names that dashboards expect, until the returned function is called. */
export function watchProcess(): () => void {
  // It keeps a timer, so it runs only where metrics are served.
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  let lastLoop = performance.eventLoopUtilization();
  const source: Source = {
    families: [
      {
        name: 'process_cpu_seconds_total',
        help: 'CPU time of the process.',
        labels: ['mode'],
        type: 'counter' as const,
      },
      {
        name: 'granary_build_info',
        help: 'Version of the process; always 1.',
        labels: ['version', 'node_version'],
        type: 'gauge' as const,
      },
      {
        name: 'granary_log_lines_dropped_total',
        help: 'Log lines dropped because nothing read the pipe.',
        labels: [],
        type: 'counter' as const,
      },
      gauge('process_resident_memory_bytes', 'Memory of the process that is in RAM.'),
      gauge('process_start_time_seconds', 'When the process began, in seconds since the epoch.'),
      gauge('nodejs_heap_used_bytes', 'Heap of JavaScript in use.'),
      gauge('nodejs_external_memory_bytes', 'Memory of buffers and the like, outside of the heap.'),
      gauge('nodejs_eventloop_utilization', 'Share of the time since the last scrape in which the event loop worked.'),
      gauge('nodejs_eventloop_delay_p50_seconds', 'How late timers were since the last scrape, median.'),
      gauge('nodejs_eventloop_delay_p99_seconds', 'How late timers were since the last scrape, 99th percentile.'),
    ],
    collect: () => {
      const { user, system } = process.cpuUsage();
      const { rss, heapUsed, external } = process.memoryUsage();
      const loop = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(loop, lastLoop);
      lastLoop = loop;
      const [p50, p99] = [seconds(delay.percentile(50)), seconds(delay.percentile(99))];
      delay.reset();
      return {
        process_cpu_seconds_total: [
          [['user'], user / 1e6],
          [['system'], system / 1e6],
        ],
        granary_build_info: [[[version, process.version], 1]],
        granary_log_lines_dropped_total: [[[], droppedLogLines()]],
        process_resident_memory_bytes: [[[], rss]],
        process_start_time_seconds: [[[], performance.timeOrigin / 1_000]],
        nodejs_heap_used_bytes: [[[], heapUsed]],
        nodejs_external_memory_bytes: [[[], external]],
        nodejs_eventloop_utilization: [[[], utilization]],
        nodejs_eventloop_delay_p50_seconds: [[[], p50]],
        nodejs_eventloop_delay_p99_seconds: [[[], p99]],
      };
    },
  };
  const remove = addSource(source);
  return () => {
    remove();
    delay.disable();
  };
}
