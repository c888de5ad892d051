import type { MethodDefinition } from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';
import { bytesHead, readOnlyBytes } from './codec';

/** The bytes of an encoded message, in parts that are copied together only when they are sent. */
export type Parts = readonly Buffer[];

/**
 * Encodes the answers of a method. A message with one field, of bytes, such as a page of documents, is not copied: it
 * is that Buffer behind a head of a few bytes, and the handler must not write to it again, as with direct calls. Every
 * other message is encoded by protobufjs.
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
 * Decodes the answers of a method. The bytes of a message with one field, of bytes, are a view of the input, as with
 * protobufjs, without its intermediate objects. Throws when the input is not a protobuf message.
 */
export function answerDeserializer(method: MethodDefinition<unknown, unknown>): (bytes: Buffer) => unknown {
  const field = onlyBytesField(method);
  if (!field) return (bytes) => method.responseDeserialize(bytes);
  return (bytes) => {
    const value = readOnlyBytes(field.number, bytes);
    return value ? { [field.name]: value } : method.responseDeserialize(bytes);
  };
}

/** A field in the descriptor of a message. */
interface FieldDescription {
  name: string;
  number: number;
  type: string;
  label: string;
}

function onlyBytesField(method: MethodDefinition<unknown, unknown>): FieldDescription | undefined {
  // Present in every definition that is loaded from a proto, although the type of grpc-js lacks it.
  const { responseType } = method as { responseType?: MessageTypeDefinition<object, object> };
  const { field: fields = [] } = (responseType?.type ?? {}) as { field?: FieldDescription[] };
  const [field] = fields;
  const isBytes = field?.type === 'TYPE_BYTES' && field.label === 'LABEL_OPTIONAL';
  // A name of several words is in camel case in TypeScript.
  const fits = fields.length === 1 && isBytes && !field.name.includes('_');
  return fits ? field : undefined;
}

/** The bytes from `start` to `end` of all parts together, as views. */
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
