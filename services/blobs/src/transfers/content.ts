/** Stored when a client sends no media type, or an invalid one. */
const unknownType = 'application/octet-stream';
const filenameMaxCharacters = 255;

const MEDIA_TYPE =
  /^[a-z0-9!#$&^_.+-]{1,127}\/[a-z0-9!#$&^_.+-]{1,127}(\s*;\s*[a-z0-9!#$&^_.+-]+=([a-z0-9!#$&^_.+-]+|"[\x20-\x21\x23-\x5b\x5d-\x7e]*"))*$/i;

/** The declared media type, if it is one. */
export function storedType(declared: string): string {
  const text = declared.trim();
  return text.length <= 255 && MEDIA_TYPE.test(text) ? text : unknownType;
}

/** The file name of a client without directories and control characters; null when nothing remains. */
export function storedFilename(filename: string | null): string | null {
  // Control characters, lone surrogates, and bidirectional overrides, which can disguise a name.
  const name = (filename ?? '').replace(/^.*[/\\]/s, '').replace(/[\p{Cc}\p{Cs}\u2028-\u202e\u2066-\u2069]/gu, '');
  const kept = [...name].slice(0, filenameMaxCharacters).join('').trim();
  return kept === '' || kept === '.' || kept === '..' ? null : kept;
}

// SVG, HTML, XML and PDF can run scripts or fetch, so they are never shown inline.
const INLINE = /^(image\/(png|jpeg|gif|webp|avif|bmp)|audio\/[a-z0-9.+-]+|video\/[a-z0-9.+-]+)$/;

/** Content-Disposition after RFC 6266: an ASCII name for old clients and the exact one after RFC 8187. */
export function contentDisposition(contentType: string, filename: string | null): string {
  const essence = contentType.split(';')[0]!.trim().toLowerCase();
  const kind = INLINE.test(essence) ? 'inline' : 'attachment';
  if (filename === null) return kind;
  const plain = filename.replace(/[^\x20-\x7e]/g, '_').replace(/["\\%]/g, '_');
  if (plain === filename) return `${kind}; filename="${plain}"`;
  const exact = encodeURIComponent(filename).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `${kind}; filename="${plain}"; filename*=UTF-8''${exact}`;
}
