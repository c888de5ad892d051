import { blobsSuite } from './suite';

describe('on files', blobsSuite);
