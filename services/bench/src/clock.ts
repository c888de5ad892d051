/** The time since the machine started, in milliseconds: the same clock in all processes. */
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;
