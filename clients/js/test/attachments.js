// Attachments of the fake server.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
export const error = (status, code) => ({ status, body: { error: { code, message: code } } });

/** Attachments as the server has them. `rule` may answer in its place. */
export function withAttachments(server, rule = () => undefined) {
  const state = { announced: [], uploaded: new Map(), requests: [] };
  server.http = async (request) => {
    const { method, url, body, headers } = request;
    state.requests.push(`${method} ${url.split('?')[0]}`);
    const other = await rule(request, state);
    if (other) return other;
    if (method === 'POST' && url === '/v1/attachments') {
      assert.equal(headers.authorization, 'Bearer token');
      const announcement = JSON.parse(body);
      const s3_ref = `ref${state.announced.push(announcement)}`;
      const place = (path) => ({ method: 'PUT', url: `${server.url}/${path}`, headers: { 'content-length': '1', 'x-signed': 'yes' } });
      if (!announcement.parts) return { status: 201, body: { s3_ref, upload: place(`blobs/${s3_ref}`), expires_at: 1 } };
      const parts = announcement.parts.sha256.map((_, n) => place(`blobs/${s3_ref}.${n}`));
      return { status: 201, body: { s3_ref, parts, expires_at: 1 } };
    }
    if (method === 'PUT') {
      assert.deepEqual([headers['x-signed'], headers.authorization], ['yes', undefined]);
      state.uploaded.set(url.slice('/blobs/'.length), body);
      return { status: 201, headers: { etag: `"${sha256(body).slice(0, 8)}"` } };
    }
    return method === 'POST' && url.endsWith('/complete') ? { status: 204 } : error(404, 'not_found');
  };
  return state;
}

/** Waits are short, time limits are not. */
export const fast = { setTimeout: (then, ms) => setTimeout(then, ms >= 15_000 ? ms : Math.min(ms, 5)) };
