// The browser of agents that log in: opens URL, follows redirects, and fails unless they end at a page.
//
//   node browser.mjs URL

import { browse } from './login.mjs';

const { url, response } = await browse(process.argv[2]);
if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
