import { jsonBytes } from './answer';
import { Compression } from './compression';
import { StaticAnswer } from './static-answer';

const request = { headers: { 'accept-encoding': 'gzip' } };

/** Compression that fails while `isFailing`. */
class FailingCompression extends Compression {
  isFailing = true;
  calls = 0;

  override compressOnce(body: Buffer, encoding: 'br' | 'gzip'): Promise<Buffer> {
    this.calls += 1;
    return this.isFailing ? Promise.reject(new Error('no memory')) : super.compressOnce(body, encoding);
  }
}

test('an answer whose compression fails is sent plain, and compressed once compression succeeds', async () => {
  const body = Buffer.from(JSON.stringify('x'.repeat(5_000)));
  const compression = new FailingCompression({ isEnabled: true, concurrency: 1 });
  const answer = new StaticAnswer(compression, jsonBytes(200, body));
  expect(await answer.for(request)).toMatchObject({ status: 200, body });
  compression.isFailing = false;
  for (let at = 0; at < 3; at++) {
    const encoded = await answer.for(request);
    expect(encoded.headers).toMatchObject({ 'Content-Encoding': 'gzip' });
    expect(encoded.body!.length).toBeLessThan(body.length);
  }
  expect(compression.calls).toBe(2);
});
