// What a page was spared, from the times that the browser itself measured.

/**
 * @typedef {{ connect: number, responseStart: number, first: Record<string, number>, }} Timing ms
 * since the navigation began: how long the document's own connection took (0: there was one
 * already), when the answer came, and when something of each origin was first asked for
 *
 * @typedef {{
 *   handshake: number | undefined,
 *   redirects: number | undefined,
 *   used: Record<string, number | undefined>,
 * }} Saved ms; undefined where there is nothing to go by
 */

/**
 * One redirect is a connection, or two round trips over one without TLS, and the round trip of its
 * answer; a connection of TCP and TLS takes two round trips. All servers are taken to be as far as
 * the page's own. A connection that was there before it was needed saves its handshake, at most the
 * time that it was there before.
 *
 * @param {{ redirects: { from: string, state: string }[], opened: { origin: string }[] }} visit
 * @param {Timing} timing
 * @returns {Saved}
 */
export function saved({ redirects, opened }, { connect, responseStart, first }) {
  const handshake = connect > 0 ? connect : undefined;
  const used = redirects.filter(({ state }) => state === "used");
  const roundTrips = used
    .map(({ from }) => (from.startsWith("https:") ? 3 : 2))
    .reduce((sum, count) => sum + count, 0);
  const ready = opened
    .filter(({ origin }) => first[origin] !== undefined)
    .map(
      ({ origin }) =>
        /** @type {const} */ ([origin, Math.max(0, (first[origin] ?? 0) - responseStart)]),
    );
  return {
    handshake,
    redirects: handshake && (handshake / 2) * roundTrips,
    used: Object.fromEntries(
      ready.map(([origin, lead]) => [origin, handshake && Math.min(handshake, lead)]),
    ),
  };
}

/** Runs in the page. @returns {Timing} */
export function timing() {
  const [navigation] = /** @type {PerformanceNavigationTiming[]} */ (
    performance.getEntriesByType("navigation")
  );
  const { connectStart = 0, connectEnd = 0, responseStart = 0 } = navigation ?? {};
  /** @type {Record<string, number>} */
  const first = {};
  for (const { name, startTime } of performance.getEntriesByType("resource")) {
    const origin = URL.canParse(name) ? new URL(name).origin : "";
    first[origin] = Math.min(first[origin] ?? startTime, startTime);
  }
  return { connect: connectEnd - connectStart, responseStart, first };
}
