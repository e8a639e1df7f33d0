// The step `listen`, which waits for notices of changed lists and lists anew after each:
//
//   {"listen": {"seconds": 20, "notices": 3}}
//
// It ends after so many notices or seconds, at most `LISTEN_S_MAX`, or with its process. What happens is printed at
// once, a line each, with the time in milliseconds since 1970; the report comes last, as ever.
//
//   READY 1790000000000                     the stream for notices is open, for the first time or again
//   CHANGED 1790000000000 tools             a notice: tools, prompts or resources
//   TOOLS 1790000000000 ["a:one","a:two"]   the list after READY and after each CHANGED
//   FAILED 1790000000000 why                a list was refused; it is asked for again
//   LOST 1790000000000 remote               the stream broke off; a modern client opens another one itself here,
//                                           those of the handshake revisions do that without a word

export const LISTEN_S_MAX = 120;

/** A modern client asks again so long after it lost its stream or was refused one, in milliseconds. */
const AGAIN_MS = 100;
/** A list that fails, as it may where a replica has just died, is asked for so often. */
const LIST_TRIES_MAX = 10;
/** Looking whether a stream is open, in milliseconds. */
const LOOK_MS = 5;
const LISTS = ['tools', 'prompts', 'resources'];

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (word, rest) => process.stdout.write(`${word} ${Date.now()}${rest === undefined ? '' : ` ${rest}`}\n`);

/** The seconds that the steps listen, all together. */
export function listening(steps) {
  return steps.reduce((sum, step) => sum + Math.min(step.listen?.seconds ?? 0, LISTEN_S_MAX), 0);
}

/** Runs one step; `opened` is what the client's script gave, `http` what its requests were answered with. */
export async function listen(opened, wanted, http, list) {
  const heard = [];
  const state = { over: false };
  let listing = Promise.resolve();
  const relist = (options) => {
    const once = async () => say('TOOLS', JSON.stringify((await list(options)).tools.map((tool) => tool.name)));
    listing = listing.then(async () => {
      for (let tries = 0; tries < LIST_TRIES_MAX; tries += 1) {
        try {
          return await once();
        } catch (error) {
          say('FAILED', error.message.split('\n')[0]);
          await pause(AGAIN_MS);
        }
      }
    });
  };
  const enough = new Promise((resolve) => {
    for (const what of LISTS) {
      opened.onChanged(what, () => {
        say('CHANGED', what);
        heard.push({ list: what, at: Date.now() });
        relist({});
        if (heard.length >= (wanted.notices ?? Infinity)) resolve();
      });
    }
    setTimeout(resolve, Math.min(wanted.seconds, LISTEN_S_MAX) * 1000);
  });
  const ready = () => {
    say('READY');
    relist({ cacheMode: 'refresh' });
  };
  const over = enough.then(() => (state.over = true));
  const stream = opened.subscribes?.() ? subscriptions(opened, ready, state, over) : streams(http, ready, state);
  await Promise.all([over, stream]);
  await listing;
  return { notices: heard };
}

// Revision 2026-07-28: the program listens, and listens again.
async function subscriptions(opened, ready, state, over) {
  const filter = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  while (!state.over) {
    try {
      const subscription = await opened.client.listen(filter);
      ready();
      const why = await Promise.race([subscription.closed, over]);
      if (state.over) return await subscription.close();
      say('LOST', why);
    } catch (error) {
      say('LOST', error.message.split('\n')[0]);
    }
    await pause(AGAIN_MS);
  }
}

// The handshake revisions: the client opens its stream by itself, and opens it again.
async function streams(http, ready, state) {
  let seen = 0;
  while (!state.over) {
    const open = http.filter(({ method, status }) => method === 'GET' && status === 200).length;
    if (open > seen) ready();
    seen = open;
    await pause(LOOK_MS);
  }
}
