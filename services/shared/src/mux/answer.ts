import type { MethodDefinition } from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';
import { bytesHead, readOnlyBytes } from './codec';

/** The bytes of an encoded message, in parts that are copied together only when they are sent. */
export type Parts = readonly Buffer[];

/**
 * Encodes the answers of a method. A message that consists of one field of bytes, as a page of documents does, is that
 * Buffer itself behind a head of a few bytes: the handler must leave it alone, which it must for a caller in the same
 * process as well. Every other message is encoded as the method has it.
 */
export function partsSerializer(method: MethodDefinition<unknown, unknown>): (response: unknown) => Parts {
  const field = onlyBytesField(method);
  if (!field) return (response) => [method.responseSerialize(response)];
  return (response) => {
    const bytes = (response as Record<string, unknown>)[field.name];
    if (!Buffer.isBuffer(bytes)) return [method.responseSerialize(response)];
    return [bytesHead(field.number, bytes.length), bytes];
  };
}

/**
 * Decodes the answers of a method. Where the message is one field of bytes, that is a view of what came, as protobufjs
 * gives it, without the objects that protobufjs makes on the way. Throws when it is no message of protobuf.
 */
export function answerDeserializer(method: MethodDefinition<unknown, unknown>): (bytes: Buffer) => unknown {
  const field = onlyBytesField(method);
  if (!field) return (bytes) => method.responseDeserialize(bytes);
  return (bytes) => {
    const value = readOnlyBytes(field.number, bytes);
    return value ? { [field.name]: value } : method.responseDeserialize(bytes);
  };
}

/** What the description of a message says of its fields. */
interface FieldDescription {
  name: string;
  number: number;
  type: string;
  label: string;
}

function onlyBytesField(method: MethodDefinition<unknown, unknown>): FieldDescription | undefined {
  // There in every definition that comes from a proto, although the type of grpc-js does not say so.
  const { responseType } = method as { responseType?: MessageTypeDefinition<object, object> };
  const { field: fields = [] } = (responseType?.type ?? {}) as { field?: FieldDescription[] };
  const [field] = fields;
  const isBytes = field?.type === 'TYPE_BYTES' && field.label === 'LABEL_OPTIONAL';
  // A name of several words is spelt otherwise in TypeScript.
  const fits = fields.length === 1 && isBytes && !field.name.includes('_');
  return fits ? field : undefined;
}

/** What lies from `start` to `end` of the bytes of all parts, as views. */
export function sliceParts(parts: Parts, start: number, end: number): Parts {
  const slices: Buffer[] = [];
  let partStart = 0;
  for (const part of parts) {
    const partEnd = partStart + part.length;
    if (partStart < end && partEnd > start)
      slices.push(part.subarray(Math.max(0, start - partStart), Math.min(part.length, end - partStart)));
    partStart = partEnd;
  }
  return slices;
}
