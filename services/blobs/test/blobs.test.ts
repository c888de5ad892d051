import { blobsSuite } from './support/suite';

describe('on files', blobsSuite);
