import { extremePlace } from './extremes';

/** `$last`: the value in the last row of a group. */
export const last = extremePlace('most');
