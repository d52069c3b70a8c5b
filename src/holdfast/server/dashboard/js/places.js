/** Places for streams, which all tabs of the browser share: a browser opens only six connections to a server. */

/** Two connections are left for requests. */
const PLACES = 4;
/** @type {(() => void) | null} */
let release = null;
/** @type {Promise<boolean> | null} */
let taking = null;

/** Takes a place, unless this tab has one. Returns whether it has one now. */
export function takePlace() {
  taking ??= take().finally(() => (taking = null));
  return taking;
}

async function take() {
  if (release || !navigator.locks) return true;
  for (let n = 0; n < PLACES; n++) {
    if (await tryPlace(`holdfast.stream.${n}`)) return true;
  }
  return false;
}

/** @param {string} name @returns {Promise<boolean>} */
function tryPlace(name) {
  return new Promise((answer) => {
    navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      answer(lock !== null);
      return lock && new Promise((done) => (release = () => done(undefined)));
    });
  });
}

/** Gives the place to another tab. */
export function leavePlace() {
  release?.();
  release = null;
}
