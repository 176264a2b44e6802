/** How sure a share of n rows is. */

const Z = 1.959964; // the normal distribution's 97.5 % quantile

/** Wilson's 95 % interval of a share that was seen on `n` rows, as [low, high]; n is above 0.
 *
 * Unlike the share plus or minus two standard errors it holds for few rows and for shares near 0
 * and 1. */
export function wilson(share, n) {
  const z2 = Z * Z;
  const middle = (share + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z / (1 + z2 / n)) * Math.sqrt((share * (1 - share)) / n + z2 / (4 * n * n));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
