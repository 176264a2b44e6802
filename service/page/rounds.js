/** When the page asks: every few seconds, ever more rarely while nobody answers, never unseen. */

const PERIOD_MS = 5_000;
const FIRST_BACKOFF_MS = 1_000;
const LONGEST_BACKOFF_MS = 30_000;

/** Repeats `round`, which resolves to nothing or throws; `failed` is told the error and the wait. */
export class Rounds {
  #round;
  #failed;
  #timer = null;
  #running = false;
  #again = false;
  #on = false;
  #backoff = FIRST_BACKOFF_MS;

  constructor(round, failed) {
    this.#round = round;
    this.#failed = failed;
  }

  start() {
    this.#on = true;
    this.#backoff = FIRST_BACKOFF_MS;
    return this.soon();
  }

  stop() {
    this.#on = false;
    clearTimeout(this.#timer);
  }

  /** Have a round now, or right after the one that is under way. */
  async soon() {
    clearTimeout(this.#timer);
    if (this.#running) this.#again = true;
    if (!this.#on || this.#running) return;
    this.#running = true;
    let wait = PERIOD_MS;
    try {
      do {
        this.#again = false;
        await this.#round();
      } while (this.#again && this.#on);
      this.#backoff = FIRST_BACKOFF_MS;
    } catch (error) {
      wait = Math.max(this.#backoff, (error.retryAfter ?? 0) * 1000);
      this.#backoff = Math.min(2 * this.#backoff, LONGEST_BACKOFF_MS);
      this.#failed(error, wait);
    } finally {
      this.#running = false;
    }
    if (this.#on) this.#timer = setTimeout(() => this.soon(), wait);
  }
}
