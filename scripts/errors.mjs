/** The sentence of whatever was thrown. @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/** How Node names the failure of a call of the system, such as `ENOENT`. @param {unknown} error */
export const codeOf = (error) => (error instanceof Error && 'code' in error ? error.code : undefined);
