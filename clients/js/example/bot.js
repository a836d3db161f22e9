// A bot that answers every message exactly once, however often it is stopped, killed and started again.
//
//   BLUETICK_URL=http://127.0.0.1:8080 node bot.js echo
//
// Its token comes from BLUETICK_TOKEN, or from the demo of a server on this machine: then BLUETICK_DEMO_KEY is the key at the
// end of the address that the server printed (or what is in demo.key of its data directory).

import { Client, fileStorage } from '@bluetick/client/node.js';
import { WebSocket } from 'ws'; // Node 22 has its own

const url = process.env.BLUETICK_URL ?? 'http://127.0.0.1:8080';
const user = process.argv[2] ?? 'echo';

async function token() {
  if (process.env.BLUETICK_TOKEN) return process.env.BLUETICK_TOKEN;
  const headers = { 'content-type': 'application/json', 'x-bluetick-demo': process.env.BLUETICK_DEMO_KEY ?? '' };
  const answer = await fetch(`${url}/demo/token`, { method: 'POST', headers, body: JSON.stringify({ user }) });
  if (!answer.ok) throw new Error(`no token for ${user}: set BLUETICK_TOKEN, or BLUETICK_DEMO_KEY of a server in demo mode`);
  return (await answer.json()).token;
}

// Called for each message before it is acked. If the process ends in here, the message comes again: so the answer has
// an id made from the message's, and the server takes a message with the same id once.
async function receive(message) {
  if (message.own) return;
  const clientMsgId = `re-${message.messageId}`;
  const answer = client.send(message.sender, { body: `You wrote: ${message.body}`, clientMsgId });
  try {
    await answer.sent;
  } catch (error) {
    if (error.code === 'closed') throw error;
    console.error('could not answer', message.conversationId, message.seq, error.code);
  }
}

const storage = fileStorage(process.env.BLUETICK_STATE ?? `./${user}.bluetick`);
const client = new Client({ url, user, token, receive, storage, WebSocket, autoRead: true, presence: false });

client.on('state', () => console.log(client.state, client.reason?.message ?? ''));
client.connect();

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => client.close().then(() => process.exit()));
