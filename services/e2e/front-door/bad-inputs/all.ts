import { appFields } from './app-fields';
import { malformedJson } from './malformed-json';
import { expressions } from './expressions';
import { datasets } from './datasets';
import { documentFields } from './document-fields';
import { definitionFields } from './definition-fields';
import { limits } from './limits';
import { nulls } from './nulls';
import { queryStrings } from './query-strings';
import { paths } from './paths';
import { headers } from './headers';
import { uploads } from './uploads';
import { conflicts } from './conflicts';
import type { BadInput } from './bad-input';

export const badInputs: readonly BadInput[] = [
  ...malformedJson(),
  ...documentFields(),
  ...expressions(),
  ...definitionFields(),
  ...datasets(),
  ...appFields(),
  ...limits(),
  ...nulls(),
  ...queryStrings(),
  ...paths(),
  ...headers(),
  ...uploads(),
  ...conflicts(),
];
