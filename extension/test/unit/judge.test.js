import assert from "node:assert/strict";
import { test } from "node:test";
import { isStale, judge } from "../../src/judge.js";
import { AGE, CLOCK_SKEW } from "../../src/limits.js";
import { PERIOD, isMissed, next } from "../../src/schedule.js";

const NOW = 1_795_000_000;
const DAY = 86_400;

test("newer databases are taken, older ones not", () => {
  const held = { created: NOW - 10 * DAY, key: "a" };
  /** @param {number} created @param {string} [key] */
  const judged = (created, key = "a") => judge({ created, key }, held, NOW);
  assert.equal(judged(held.created + 1), "take");
  assert.equal(judged(held.created), "same");
  assert.throws(() => judged(held.created - 1), /older than the one in use/);
  // Another maker's.
  assert.equal(judged(held.created - 1, "b"), "take");
  assert.equal(judged(held.created, "b"), "take");
});

test("ages have bounds on both sides", () => {
  /** @param {number} created */
  const judged = (created) => judge({ created, key: "a" }, undefined, NOW);
  assert.equal(judged(NOW + CLOCK_SKEW), "take");
  assert.throws(() => judged(NOW + CLOCK_SKEW + 1), /future/);
  assert.equal(judged(NOW - AGE), "take");
  assert.throws(() => judged(NOW - AGE - 1), /stale/);
  assert.deepEqual([isStale(NOW - AGE, NOW), isStale(NOW - AGE - 1, NOW)], [false, true]);
});

test("a fetch a day, at a moment that the seed decides", async () => {
  const seed = Array(32).fill(7);
  const midnight = 20_000 * PERIOD;
  const first = await next(seed, midnight);
  assert.ok(first > midnight && first < midnight + PERIOD / 4);
  // Neither the start nor a failure moves it; after a failure there are three more tries.
  assert.equal(await next(seed, first - 1), first);
  let at = first;
  for (const part of [1, 2, 3]) {
    at = await next(seed, at);
    assert.equal(Math.floor((at - midnight) / (PERIOD / 4)), part);
  }
  assert.ok((await next(seed, first, first)) >= midnight + PERIOD);
  assert.notEqual(await next(Array(32).fill(8), midnight), first);
  assert.deepEqual([isMissed(first, first + 60), isMissed(first, first + 61)], [false, true]);
});
