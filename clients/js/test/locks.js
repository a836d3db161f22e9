// The part of the browser's lock manager that is used, for the pages of one test: one has a lock, the others queue.

export class Locks {
  #queues = new Map();

  request(name, { ifAvailable = false, signal }, callback) {
    const queue = this.#queues.get(name) ?? [];
    this.#queues.set(name, queue);
    if (ifAvailable && queue.length > 0) return Promise.resolve(callback(null));
    return new Promise((resolve, reject) => {
      const entry = {
        granted: false,
        grant: async () => {
          entry.granted = true;
          try {
            resolve(await callback({ name }));
          } catch (error) {
            reject(error);
          } finally {
            queue.shift();
            queue[0]?.grant();
          }
        },
      };
      signal?.addEventListener('abort', () => {
        if (entry.granted) return;
        queue.splice(queue.indexOf(entry), 1);
        reject(new DOMException('aborted', 'AbortError'));
      });
      queue.push(entry);
      if (queue.length === 1) void entry.grant();
    });
  }

  /** How many have it or wait for it. */
  count(name) {
    return this.#queues.get(name)?.length ?? 0;
  }
}
