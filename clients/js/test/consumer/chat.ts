// A consumer in strict TypeScript: compiled by a test, never run.

import { BluetickError, Client, memoryStorage, type Conversation, type Message, type Storage, type Tick } from '@bluetick/client';
import { fileStorage } from '@bluetick/client/node.js';

const stored: Storage = fileStorage('./state');
const client = new Client({
  url: 'https://chat.example',
  user: 'alice',
  token: async () => 'token',
  storage: Math.random() < 0.5 ? stored : memoryStorage(),
  receive: async (message: Message) => console.log(message.body, message.messageId),
});

client.on('message', (message, conversation) => {
  const body: string = message.body;
  conversation.read(message.seq ?? undefined);
  console.log(body);
});
client.on('failed', (message, error) => console.log(message.clientMsgId, error.code, error.retryAfterMs));
const off: () => void = client.on('state', ({ state, retryAt }) => console.log(state, retryAt));
off();

const conversation: Conversation = client.conversation('bob');
const sent: Message = conversation.send({ body: 'look', file: new Blob(['x']), meta: { kind: 'picture' } });
const tick: Tick = sent.tick;
const done: Promise<Message> = sent.sent;
console.log(tick, done, new BluetickError('offline').code);

// @ts-expect-error there is no such event
client.on('nonsense', () => {});
// @ts-expect-error a number is no text
client.send('bob', 5);
// @ts-expect-error messages are made by sending
new Message();
// @ts-expect-error a token is needed
new Client({ user: 'alice' });
// @ts-expect-error what is inside stays inside
conversation._queue(sent);
