// What this page has seen since it was opened: the running tasks of each group, and the pressure, over time.

const LONGEST_MS = 30 * 60 * 1000;
const MOST_POINTS = 600;

export const seen = [];

export function remember(overview, now) {
  const groups = {};
  for (const group of overview.groups ?? []) groups[group.name] = { running: group.running, slots: group.slots };
  seen.push({ at: now, groups, pressure: overview.pressure ?? {} });
  while (seen.length && seen[0].at < now - LONGEST_MS) seen.shift();
  // Far points may be coarse: drop every other one of the older half.
  if (seen.length > MOST_POINTS) {
    const older = seen.splice(0, MOST_POINTS / 2).filter((_, place) => place % 2 === 0);
    seen.unshift(...older);
  }
}
