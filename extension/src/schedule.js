// When to fetch a newer database: at moments that a seed and the clock alone decide, as `headstart
// pageload db fetch --every 1day` does (docs/databases.md). Neither the start of the browser, nor
// what is visited, nor a failure moves one.

/** Seconds between fetches. */
export const PERIOD = 86_400;

/** Tries within a period, after failures. */
const TRIES = 4;

/**
 * How much later than its moment a fetch may be, in seconds: later, it would tell when the machine
 * woke up.
 */
const LATE = 60;

/**
 * The next moment after `now`: of a fetch if the last one went well, else of another try.
 * @param {number[]} seed
 * @param {number} now
 * @param {number} [fetched] all in seconds since 1970
 */
export async function next(seed, now, fetched) {
  const period = Math.floor(now / PERIOD);
  const isDone = fetched !== undefined && fetched <= now && Math.floor(fetched / PERIOD) >= period;
  for (let of = isDone ? period + 1 : period; ; of += 1) {
    for (let part = 0; part < TRIES; part += 1) {
      const at = await moment(seed, of, part);
      if (at > now) return at;
    }
  }
}

/**
 * Whether `now` is too late for a fetch of that moment.
 * @param {number} moment
 * @param {number} now
 */
export function isMissed(moment, now) {
  return now - moment > LATE;
}

/**
 * @param {number[]} seed
 * @param {number} period
 * @param {number} part
 */
async function moment(seed, period, part) {
  const input = new Uint8Array(44);
  input.set(seed.slice(0, 32));
  const view = new DataView(input.buffer);
  view.setBigUint64(32, BigInt(period));
  view.setUint32(40, part);
  const hash = new DataView(await crypto.subtle.digest("SHA-256", input));
  const length = PERIOD / TRIES;
  return period * PERIOD + part * length + Number(hash.getBigUint64(0) % BigInt(length));
}
