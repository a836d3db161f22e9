// The stories that "Show me" tells. A step acts with the real phones and says what to watch; it is over when the steps
// that the server took are shown.
//
// `stage` is what a story can touch: `alice` and `bob` (phones), and `after(step, user)`, a promise of the next such event.

/** @typedef {{title: string, caption: string, watch?: string[], act?: (stage: object) => unknown}} StoryStep */

/** Both online, the conversation open on Alice's phone and not on Bob's. */
async function bothOnline({ alice, bob }) {
  for (const phone of [alice, bob]) phone.turn(true);
  await Promise.all([alice.becomes('online'), bob.becomes('online')]);
  alice.open(bob.user);
  bob.back();
}

async function offline({ bob, after }) {
  const gone = after('unregistered', bob.user);
  bob.turn(false);
  await gone;
}

/** Sends one message after another, each when the one before has its tick. */
async function write(phone, to, ...bodies) {
  for (const body of bodies) await phone.say(to.user, body);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/** A phone connects within some ten milliseconds. */
const BETWEEN_SENDS_MS = 8;

export const STORIES = [
  {
    id: 'offline',
    name: 'Bob is offline',
    gapMs: 500,
    steps: [
      { title: 'Two phones, one server', caption: 'Alice and Bob are connected: each has an entry in `ws:`.', watch: ['ws'], act: bothOnline },
      { title: 'Bob goes through a tunnel', caption: 'His connection ends, and his entry in `ws:` is removed. Nothing else changes.', watch: ['ws'], act: offline },
      {
        title: 'Alice writes to him', caption: 'No session is found, so the message and a pending row are stored in one write. Then the server looks Bob up again. Only then does Alice get her tick.', watch: ['messages', 'pending_deliveries'],
        act: ({ alice, bob }) => write(alice, bob, 'Are you there?'),
      },
      {
        title: '… and twice more', caption: 'Two more `messages` rows. Still one row in `pending_deliveries`: it keeps the first seq that Bob lacks.', watch: ['messages', 'pending_deliveries'],
        act: ({ alice, bob }) => write(alice, bob, 'The train is at 9:40', 'Platform 3!'),
      },
      {
        title: 'Look at the pending row', watch: ['pending_deliveries'],
        caption: 'This one row is all that the server keeps for Bob while he is away. It would be the same after a thousand messages, or after a restart of the server.',
      },
      {
        title: 'Bob is back', caption: 'Registered first, then drained in order. His phone acks, `last_delivered_seq` moves, the row is deleted, and Alice sees double ticks.', watch: ['ws', 'message_status', 'pending_deliveries'],
        async act({ bob, after }) {
          const done = Promise.all([after('caught_up', bob.user), after('acked', bob.user), after('row_gone', bob.user)]);
          bob.turn(true);
          await done;
        },
      },
      {
        title: 'Bob opens the chat', caption: '`last_read_seq` moves, his `unread_count` is 0, and Alice sees blue.', watch: ['message_status', 'conversations'],
        async act({ alice, bob, after }) {
          const done = after('read', bob.user);
          bob.open(alice.user);
          await done;
        },
      },
      { title: 'Nothing lost, nothing twice', caption: 'That was the whole offline path, on the real server. Now write on the phones yourself, or switch one off.' },
    ],
  },
  {
    id: 'online',
    name: 'Both online',
    gapMs: 500,
    steps: [
      { title: 'Two phones, one server', caption: 'Alice and Bob are connected: each has an entry in `ws:`.', watch: ['ws'], act: bothOnline },
      {
        title: 'Alice writes, Bob is there', caption: 'The lookup after the write finds his session, which accepts the message: no pending row. His phone acks it: two ticks.', watch: ['messages', 'ws', 'message_status'],
        async act({ alice, bob, after }) {
          const done = after('acked', bob.user);
          await write(alice, bob, 'Lunch?');
          await done;
        },
      },
      {
        title: 'Bob opens the chat', caption: 'A person reads, not a phone: only now `last_read_seq` moves, and the ticks turn blue.', watch: ['message_status', 'conversations'],
        async act({ alice, bob, after }) {
          const done = after('read', bob.user);
          bob.open(alice.user);
          await done;
        },
      },
      {
        title: 'Bob answers', caption: 'The same steps in the other direction. Alice has the chat open, so his ticks are blue at once.', watch: ['messages', 'message_status'],
        async act({ alice, bob, after }) {
          const done = after('read', alice.user);
          await write(bob, alice, 'At one, by the river');
          await done;
        },
      },
      { title: 'That is the fast path', caption: 'Five steps for a message, one write to disk. Now take Bob off the network and see what changes.' },
    ],
  },
  {
    id: 'race',
    name: 'The race',
    gapMs: 400,
    steps: [
      { title: 'Two phones, one server', caption: 'The write flow has one dangerous moment: between the lookup of Bob’s sessions and the write. He may connect just then.', watch: ['ws'], act: bothOnline },
      { title: 'Bob is away', caption: 'So the first lookup will find no session of his.', watch: ['ws'], act: offline },
      {
        title: 'He connects while Alice sends', caption: 'Four messages while he connects, as fast as the server is. The replay shows who was first: he is registered before he reads (R1), and looked up again after each write (R2).', watch: ['ws', 'pending_deliveries'],
        async act({ alice, bob, after }) {
          const caughtUp = after('caught_up', bob.user);
          const sends = [alice.say(bob.user, 'Mind')];
          bob.turn(true);
          for (const body of ['the', 'gap,', 'please']) {
            await sleep(BETWEEN_SENDS_MS);
            sends.push(alice.say(bob.user, body));
          }
          await Promise.all([...sends, caughtUp]);
        },
      },
      { title: 'Whoever is first delivers', caption: 'His drain or the second lookup: one of the two always sees the message, and his phone drops what comes twice. Without them a message could lie in its row until his next connection. Tell it again: the order may differ.' },
    ],
  },
];
