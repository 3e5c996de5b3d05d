// How long a question may take.

/** Milliseconds of one question; the worker stops itself. */
export const LIMIT = 5000;
/** Milliseconds more until the client ends a worker that does not stop itself. */
export const GRACE = 1000;
/** A question that runs longer than this is ended, with its worker, when a new one comes. */
export const PATIENCE = 300;
