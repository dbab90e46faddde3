// The admin key of the person who uses this page, and the requests to the server, which carry it.

// Milliseconds without an answer after which the server counts as unreachable.
const REQUEST_TIMEOUT = 3000;

// The server has answered a request with an error: status is that of HTTP, message says why.
class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Kept until this tab is closed and no longer, and never put into an address.
const key = {
  get secret() {
    try { return sessionStorage.getItem("admin-key"); } catch { return this.unkept ?? null; }
  },
  set secret(value) {
    this.unkept = value;
    try {
      if (value === null) sessionStorage.removeItem("admin-key");
      else sessionStorage.setItem("admin-key", value);
    } catch { /* Then until the page is loaded again. */ }
  },
};

// The answer to a request as an object. A body makes it a POST.
async function ask(path, body, secret = key.secret, timeout = REQUEST_TIMEOUT) {
  const headers = secret ? { Authorization: `Bearer ${secret}` } : {};
  const options = { cache: "no-store", headers, signal: AbortSignal.timeout(timeout) };
  if (body !== undefined) Object.assign(options, { method: "POST", body: body === null ? "" : JSON.stringify(body) });
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, options);
  let answer = null;
  try { answer = await response.json(); } catch { /* An answer that another program in between has made. */ }
  if (!response.ok) throw new Refusal(response.status, answer?.error ?? answer?.outcome ?? `status ${response.status}`);
  return answer;
}
