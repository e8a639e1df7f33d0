/*
 * The one script of the console. Every page works without it; with it,
 *   - the number of permission requests that wait is in the title and the navigation of every page, as it is now,
 *   - the part of a page with data-live is asked for again when its content has changed: "activity", "permissions" and "call" when the server
 *     says so (server-sent events, /console/events), "overview" every 15 s,
 *   - a part with data-again-s in it is asked for again after so many seconds,
 *   - a page that answers a form gets the address that it names as its own (rel=canonical), so that loading it again sends nothing,
 *   - comments that were typed on other requests are kept over a decision about one, and over a login,
 *   - what was typed into a form with data-keep is in it again after the end of its session: the server marks the pages that say that
 *     nothing was done (data-form-lost),
 *   - exact times in hover texts, and those with data-exact, have the visitor's local time beside UTC; times within sentences are UTC alone,
 *   - a text with data-copy has a button that copies it,
 *   - j and k move between permission requests, a and d from a request to its buttons. A button is pressed as any other.
 * A part is asked for at most every 2 s, never while the page is hidden or paused, and less often after errors; the number of requests
 * that wait every 30 s on a hidden page, for its title. Nothing is asked any more once the session has ended. What comes is the same page, written by the server's templates; it is read without running
 * anything, and put in place node by node, so that focus, open details and typed texts stay.
 */
'use strict';
(() => {
  const EVENTS = '/console/events';
  const PAUSE_MS = 2000; // least time between two requests for a part
  const OVERVIEW_MS = 15000;
  const RETRY_MS = 2000; // first pause after an error; each further one is twice as long
  const RETRY_MAX_MS = 60000;
  const PEEK_MS = 30000; // time between two looks of a hidden page at the number of requests
  const NEWS_MS = 8000; // time for which news are in sight of whoever has scrolled down
  const PAUSED = 'Updates are paused: this list stays as it is.';
  const GUARD_MS = 700; // decisions right after a list has moved are meant for another place

  const nav = document.querySelector('header nav');

  /* what was typed when the session ended: it stays in this tab over the login, for the same visitor in the same tenant alone */
  const FORM = 'mcpproxy-form';
  const DRAFTS = 'mcpproxy-comments';
  const STORED_CHARS_MAX = 1048576; // UTF-16 units of JSON: more than the largest form has that the gateway takes
  const whose = nav?.parentElement.dataset.whose;
  const keepers = () => [...document.querySelectorAll('form[data-keep]')];
  const KEPT = ':is(input, select, textarea):not([type="password"], [name="csrf"], [data-keep="no"])';
  const fieldsOf = (form) => [...form.elements].filter((field) => field.matches(KEPT));
  // forms about several tools have the same action
  const idOf = (form) => `${form.getAttribute('action')} ${form.querySelector('[type="hidden"][name="tool"]')?.value ?? ''}`;
  const store = (name, entry) => {
    try {
      sessionStorage.removeItem(name);
      const text = JSON.stringify(entry);
      if (entry && text.length <= STORED_CHARS_MAX) sessionStorage.setItem(name, text);
    } catch {
      // a browser that keeps nothing
    }
  };
  const stored = (name) => {
    try {
      return JSON.parse(sessionStorage.getItem(name));
    } catch {
      return null;
    }
  };
  const keep = (form, isLost) => {
    const values = Object.fromEntries(fieldsOf(form).map((field) => [field.name, field.value]));
    store(FORM, { whose, form: idOf(form), values, isLost });
  };
  const kept = stored(FORM);
  if (!nav) {
    // the login, or the page about a form of an earlier session: only these know that nothing was done
    const isLost = kept?.isLost || document.querySelector('[data-form-lost]') !== null;
    store(FORM, kept && isLost ? { ...kept, isLost } : null);
    return;
  }
  store(FORM, null);
  if (stored(DRAFTS)?.whose !== whose) store(DRAFTS, null);
  const mine = kept?.isLost && kept.whose === whose && keepers().find((form) => idOf(form) === kept.form);
  if (mine) {
    for (const field of fieldsOf(mine).filter((field) => Object.hasOwn(kept.values, field.name))) {
      const value = kept.values[field.name];
      if (field.options && ![...field.options].some((option) => option.value === value)) continue;
      field.value = value;
      const cover = field.closest('details');
      if (cover && value) cover.open = true;
    }
    const notice = document.createElement('p');
    notice.className = 'notice';
    notice.setAttribute('role', 'status');
    document.querySelector('main').prepend(notice);
    notice.textContent = 'What you typed before is in the form again; it was not sent again. ';
    const isSecret = (field) => field.matches('[data-keep="no"]:not([type="hidden"])');
    if ([...mine.elements].some(isSecret)) notice.textContent += 'Fields that may hold secrets are empty. ';
    const link = document.createElement('a');
    mine.id ||= 'kept';
    [link.href, link.textContent] = [`#${mine.id}`, 'Go to the form'];
    notice.append(link);
  }
  document.addEventListener('submit', (event) => {
    if (event.defaultPrevented) return;
    if (event.target.matches('form[data-keep]')) keep(event.target, false);
    else store(FORM, null);
    if (event.target.closest('header')) store(DRAFTS, null); // a logout
  });
  // form that was last filled in: after a login, by the answer to what it sent, or since then
  const sendsHere = (sender) => new URL(sender.formAction ?? sender.action).pathname === location.pathname;
  let filled = mine || keepers().find((form) => [form, ...form.querySelectorAll('[formaction]')].some(sendsHere));
  document.addEventListener('input', (event) => {
    if (event.target.form?.matches('[data-keep]')) filled = event.target.form;
  });

  // of the session and its tenant: another one's forms are never put into this page
  const session = (page) => page.querySelector('header input[name="csrf"]')?.value;
  const own = session(document);
  const title = document.title;
  const region = document.querySelector('[data-live]');
  const kind = region ? region.dataset.live : '';
  let isStopped = false;

  const place = document.querySelector('link[rel="canonical"]');
  if (place) history.replaceState(null, '', place.href);

  /* exact times, such as 2026-11-27 20:47:49 UTC, also in the visitor's zone */
  const withLocal = (exact) => {
    const at = new Date(exact.replace(' UTC', 'Z').replace(' ', 'T'));
    const apart = at.getTimezoneOffset(); // minutes
    if (!apart) return exact;
    const [date, time] = new Date(at - apart * 60000).toISOString().slice(0, 19).split('T');
    return `${exact}, ${exact.startsWith(date) ? '' : `${date} `}${time} here`;
  };
  const localise = (part) => {
    for (const time of part.querySelectorAll('time[title]')) time.title = withLocal(time.title);
    for (const text of part.querySelectorAll('[data-exact]')) text.textContent = withLocal(text.textContent);
  };
  localise(document);

  /* what is said: a line at the top of the page, which screen readers read out */
  const line = document.createElement('p');
  line.className = 'live quiet';
  const said = document.createElement('span');
  said.setAttribute('role', 'status');
  line.append(said);
  document.querySelector('main').prepend(line);
  let isCount = false; // what is said is the number of requests
  let isPaused = false;
  let fading = 0;
  const say = (text, ...more) => {
    isCount = false;
    const whole = isPaused ? `${PAUSED} ${text}`.trim() : text;
    if (said.textContent === whole) return;
    said.replaceChildren(whole, ...more);
    clearTimeout(fading);
    said.classList.toggle('news', whole !== '' && line.getBoundingClientRect().bottom < 0);
    fading = setTimeout(() => said.classList.remove('news'), NEWS_MS);
  };
  const stop = (text) => {
    isStopped = true;
    clearTimeout(timer);
    hangUp();
    const again = document.createElement('a');
    again.href = location.pathname + location.search; // a link to a part of this page would load nothing
    again.textContent = 'Load it again';
    again.addEventListener('click', () => {
      if (filled) keep(filled, true);
      keepDrafts(filled);
    });
    line.replaceChildren(said, ' ', again);
    line.classList.add('failure');
    say(text);
  };
  const LOGGED_OUT = 'Logged out: log in again.';
  const isLogin = (answer) => answer.type === 'opaqueredirect' || answer.status === 401;

  /* number of requests that wait */
  let waiting = Number.parseInt(nav.querySelector('.count')?.textContent ?? '0', 10) || 0;
  const count = (now) => {
    if (now > waiting || isCount) {
      say(now === 0 ? '' : now === 1 ? 'A permission request waits.' : `${now} permission requests wait.`);
      isCount = true;
    }
    waiting = now;
    document.title = now > 0 ? `(${now}) ${title}` : title;
    const link = nav.querySelector('a[href="/console/permissions"]');
    if (!link) return;
    link.querySelector('.count')?.remove();
    link.firstChild.data = `${link.firstChild.data.trim()} `;
    if (now > 0) {
      const [badge, rest] = [document.createElement('span'), document.createElement('span')];
      [badge.className, badge.textContent] = ['count', String(now)];
      [rest.className, rest.textContent] = ['hidden', ' waiting'];
      badge.append(rest);
      link.append(badge);
    }
  };
  count(waiting);

  /* putting a newer part in the place of the one that is shown */
  let movedAt = -GUARD_MS;
  // what the guard holds back is pale
  const settle = () => {
    region.classList.add('settling');
    setTimeout(() => {
      if (performance.now() - movedAt >= GUARD_MS) region.classList.remove('settling');
    }, GUARD_MS);
  };
  const note = (place, text) => {
    const said = place.querySelector('.failure.over') ?? document.createElement('p');
    [said.className, said.textContent] = ['failure over', text];
    said.setAttribute('role', 'status');
    if (!said.parentNode) place.prepend(said);
    return said;
  };
  const becameOf = (card) => {
    const link = document.createElement('a');
    link.href = `/console/permissions?request=${card.id.slice('card-'.length)}`;
    link.textContent = 'What became of it';
    return link;
  };
  const remove = (node) => {
    if (node.contains(document.activeElement)) {
      // somebody is at it: it stays, and says that it is over
      const form = node.querySelector?.('form');
      if (!form || form.classList.contains('ended')) return;
      form.classList.add('ended');
      for (const button of form.querySelectorAll('button')) button.disabled = true;
      const state = form.closest('article')?.querySelector('[data-state]');
      if (state) state.textContent = 'does not wait any more';
      const over = note(form, 'This has ended or was decided meanwhile. Nothing can be sent any more. ');
      const card = form.closest('article');
      if (card) over.append(becameOf(card));
      return;
    }
    const heading = node.matches?.('article.card') && node.querySelector('h2');
    if (heading) say(`Not waiting any more: ${heading.textContent}. `, becameOf(node));
    node.remove();
    if (node.id) movedAt = performance.now();
  };
  const update = (old, now) => {
    if (old.isEqualNode(now)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = now.nodeValue;
      return;
    }
    const isOwn = (name) => name === 'open' && old.nodeName === 'DETAILS';
    for (const { name } of [...old.attributes]) {
      if (!now.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) !== value && !isOwn(name)) old.setAttribute(name, value);
    }
    const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    const stays = new Set([...now.children].map((child) => child.id));
    const isAlike = (one, other) => one.nodeName === other.nodeName && !one.id && !other.id;
    let at = old.firstChild;
    const next = () => {
      const passed = at;
      at = at.nextSibling;
      return passed;
    };
    for (const wanted of [...now.childNodes]) {
      while (at && at.id && !stays.has(at.id)) remove(next());
      const known = wanted.id && named.get(wanted.id);
      if (known) {
        while (at && at !== known && !at.id) remove(next());
        if (at === known) next();
        else old.insertBefore(known, at);
        update(known, wanted);
      } else if (at && isAlike(at, wanted)) {
        update(next(), wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), at);
        if (wanted.id) movedAt = performance.now();
      }
    }
    while (at) remove(next());
  };

  /* asking for a part again */
  const least = kind === 'overview' ? OVERVIEW_MS : PAUSE_MS;
  let [timer, askedAt, failures] = [0, Date.now(), 0];
  let [isAsking, isWanted] = [false, false];
  const ask = async () => {
    const answer = await fetch(location.href, {
      headers: { 'X-Console-Refresh': '1' },
      redirect: 'manual',
      cache: 'no-store',
    });
    if (isLogin(answer)) return stop(LOGGED_OUT);
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) return stop('This page has changed.');
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const now = page.querySelector(`[data-live="${kind}"]`);
    if (session(page) !== own) {
      const isSame = page.querySelector('header')?.dataset.whose === whose;
      return stop(isSame ? 'You have logged in anew.' : 'Somebody else is logged in, or another tenant is chosen.');
    }
    if (!now) return stop('This page has changed.');
    localise(now);
    const movedBefore = movedAt;
    if (!isPaused) update(region, now);
    if (movedAt !== movedBefore) settle();
    schedule();
  };
  const want = () => {
    if (!region || isStopped) return;
    isWanted = true;
    if (timer || isAsking || isPaused || document.hidden) return;
    const pause = failures ? Math.min(RETRY_MS * 2 ** failures, RETRY_MAX_MS) : 0;
    timer = setTimeout(run, Math.max(askedAt + Math.max(least, pause) - Date.now(), 0));
  };
  const run = async () => {
    [timer, askedAt, isAsking, isWanted] = [0, Date.now(), true, false];
    try {
      await ask();
      failures = 0;
    } catch {
      failures += 1;
      isWanted = true;
    }
    isAsking = false;
    if (isWanted || kind === 'overview') want();
  };

  /* what looks different after some seconds says so: a notice that goes away, a call that waits */
  let due = 0;
  const schedule = () => {
    clearTimeout(due);
    const parts = [...(region?.querySelectorAll('[data-again-s]') ?? [])];
    const seconds = Math.min(...parts.map((part) => Number(part.dataset.againS)));
    if (seconds > 0 && seconds < Infinity && !isStopped) due = setTimeout(want, seconds * 1000);
  };
  schedule();

  /* comments on other requests outlive a decision about one, and a login */
  const comments = () => [...document.querySelectorAll('article.card input[name="comment"]')];
  const keepDrafts = (form) => {
    if (kind !== 'permissions') return;
    const others = comments().filter((field) => field.value && field.form !== form);
    store(DRAFTS, { whose, drafts: Object.fromEntries(others.map((field) => [field.id, field.value])) });
  };
  if (kind === 'permissions') {
    const drafts = stored(DRAFTS)?.drafts ?? {};
    store(DRAFTS, null);
    for (const field of comments()) if (drafts[field.id]) field.value = drafts[field.id];
    document.addEventListener('submit', (event) => {
      if (!event.target.closest('header')) keepDrafts(event.target);
    });
  }

  /* hearing of news */
  let stream = null;
  let retry = RETRY_MS;
  let peek = 0;
  const hangUp = () => {
    clearTimeout(peek);
    stream?.close();
    stream = null;
  };
  // a hidden page looks at the number now and then: open streams of many tabs would keep others from loading
  const rest = () => {
    hangUp();
    if (!isStopped) peek = setTimeout(listen, PEEK_MS);
  };
  const listen = () => {
    if (stream || isStopped) return;
    stream = new EventSource(EVENTS);
    stream.addEventListener('open', () => {
      retry = RETRY_MS;
    });
    stream.addEventListener('permissions', (event) => {
      count(Number(event.data));
      if (document.hidden) rest();
      if (kind === 'permissions' || kind === 'call') want();
    });
    stream.addEventListener('activity', () => {
      if (document.hidden) rest();
      if (kind === 'activity') want();
    });
    stream.addEventListener('error', () => {
      // otherwise the browser comes back by itself
      if (stream?.readyState === EventSource.CLOSED) lost();
    });
  };
  const lost = async () => {
    hangUp();
    const asked = new AbortController();
    try {
      const answer = await fetch(EVENTS, { redirect: 'manual', cache: 'no-store', signal: asked.signal });
      if (isLogin(answer)) return stop(LOGGED_OUT);
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) return stop('You are not let in any more.');
    } catch {
      // the gateway is away
    } finally {
      asked.abort();
    }
    setTimeout(listen, retry * (0.5 + Math.random()));
    retry = Math.min(retry * 2, RETRY_MAX_MS);
  };

  if (region) {
    const button = document.createElement('button');
    [button.type, button.className, button.textContent] = ['button', 'plain', 'Pause updates'];
    button.addEventListener('click', () => {
      isPaused = !isPaused;
      clearTimeout(timer);
      timer = 0;
      button.textContent = isPaused ? 'Go on with updates' : 'Pause updates';
      say('');
      if (!isPaused) want();
    });
    line.append(' ', button);
    document.addEventListener(
      'submit',
      (event) => {
        if (performance.now() - movedAt >= GUARD_MS || !region.contains(event.target)) return;
        event.preventDefault();
        note(event.target, 'The list has just moved, and nothing was sent: look again.');
      },
      true,
    );
  }
  // a page that the browser kept may be old
  window.addEventListener('pageshow', (event) => {
    if (event.persisted) want();
  });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      clearTimeout(timer);
      timer = 0;
      rest();
    } else {
      clearTimeout(peek);
      listen();
      if (isWanted || kind === 'overview') want();
    }
  });

  /* texts to be copied; browsers let a page do that over https and on their own machine alone */
  for (const text of navigator.clipboard ? document.querySelectorAll('[data-copy]') : []) {
    const button = document.createElement('button');
    [button.type, button.className, button.textContent] = ['button', 'plain', 'Copy'];
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = 'Copied';
      } catch {
        button.textContent = 'The browser lets nothing be copied: select the text';
      }
      say(button.textContent);
    });
    text.after(button);
  }

  /* keys */
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const cards = [...document.querySelectorAll('article.card')];
    const at = cards.findIndex((card) => card.contains(document.activeElement));
    const button = (decision) => cards[at]?.querySelector(`button[value="${decision}"]`);
    const to = {
      j: () => cards[Math.min(at + 1, cards.length - 1)],
      k: () => cards[Math.max(at - 1, 0)],
      a: () => button('allow_once'),
      d: () => button('reject_once'),
    }[event.key];
    const found = to?.();
    if (!found) return;
    event.preventDefault();
    found.focus();
  });

  if (document.hidden) rest();
  else listen();
  if (kind === 'overview') want();
})();
