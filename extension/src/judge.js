// Whether to take a database that is good in itself: not one that is older than what is held,
// stale, or of the future.

import { Refused } from "./file.js";
import { AGE, CLOCK_SKEW } from "./limits.js";

/** @typedef {{ created: number, key: string }} Held the database in use */

/**
 * @param {{ created: number, key: string }} offered
 * @param {Held | undefined} held
 * @param {number} now seconds since 1970
 * @returns {"take" | "same"}
 */
export function judge(offered, held, now) {
  if (offered.created > now + CLOCK_SKEW) throw new Refused("its date lies in the future");
  // Another maker's dates have nothing to do with this one's.
  const ofSameMaker = held?.key === offered.key ? held : undefined;
  if (ofSameMaker && offered.created < ofSameMaker.created)
    throw new Refused("it is older than the one in use");
  if (isStale(offered.created, now))
    throw new Refused(`it is stale: older than ${AGE / 86_400} days`);
  return ofSameMaker?.created === offered.created ? "same" : "take";
}

/**
 * Whether a database is too old to be used.
 * @param {number} created
 * @param {number} now both in seconds since 1970
 */
export function isStale(created, now) {
  return now - created > AGE;
}
