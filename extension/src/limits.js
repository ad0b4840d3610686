// Every bound in one place. A database comes over the network; who signs it is trusted with
// redirects, not with memory.

/** Bytes of a file: as of every page database (docs/databases.md). */
export const FILE_BYTES = 32 << 20;

/** Bytes of the JSON in it, uncompressed. */
export const BODY_BYTES = 64 << 20;

/** Pages, and redirects, of a database. */
export const ENTRIES = 100_000;

/** Connections that one page is said to need: the largest published pages have 60 servers. */
export const SERVERS_PER_PAGE = 256;

/**
 * Connections that are opened for one page. Chromium has 256 sockets for all pages; the published
 * mean is 17 servers.
 */
export const CONNECTIONS_PER_PAGE = 32;

/** Characters of a URL: a path has 2,048 at most in a database. */
export const URL_LENGTH = 2400;

/**
 * How far a maker's clock may be ahead, in seconds. A file from the future would keep all later
 * ones out.
 */
export const CLOCK_SKEW = 86_400;

/**
 * How old a database may be, in seconds: 90 days. Servers and redirects of pages change within
 * weeks; an old one opens connections in vain.
 */
export const AGE = 90 * 86_400;

/** Longest that a fetch may take, in milliseconds. */
export const FETCH_MS = 120_000;

/**
 * Redirects of one visit that are remembered for the popup: browsers follow 20 (Fetch, section
 * 4.4).
 */
export const REDIRECTS_PER_VISIT = 20;
