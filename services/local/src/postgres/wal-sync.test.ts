import { fasterMethod } from './wal-sync';

const times = (commitUs: number, bulkUs = 400) => ({ commitUs, bulkUs });

test.each([
  ['clearly faster', times(200), times(170), 'open_datasync'],
  ['within a tenth', times(200), times(185), 'fdatasync'],
  ['slower', times(200), times(400), 'fdatasync'],
  ['faster, but not with bulks', times(200), times(150, 500), 'fdatasync'],
  ['faster, and a little slower with bulks', times(200), times(150, 430), 'open_datasync'],
])('commits that are %s are made durable as they should be', (_, fdatasync, writeThrough, expected) => {
  expect(fasterMethod({ fdatasync, open_datasync: writeThrough })).toBe(expected);
});
