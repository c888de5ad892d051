import { extremePlace } from './extremes';

/** `$first`: the value in the first row of a group. */
export const first = extremePlace('least');
