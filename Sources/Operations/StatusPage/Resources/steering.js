// What an operator with an admin key can do here: reload, drain, and look at or delete the token of one id.

const steering = {
  card: byID("steering"), keyForm: byID("key-form"), keyField: byID("key"), actions: byID("actions"),
  idForm: byID("id-form"), idField: byID("id"), found: byID("found"), result: byID("result"),
  // The id that was looked up; forgotten as soon as another one is, or the field changes.
  id: null,
};

// Announced by screen readers.
function announce(text, isProblem = false) {
  steering.result.classList.toggle("problem", isProblem);
  setText(steering.result, text);
}

// Asks the operator to confirm what cannot be undone, and returns whether the operator does.
function confirmed(question, action) {
  const dialog = byID("confirm");
  setText(byID("confirm-question"), question);
  setText(byID("confirm-action"), action);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
byID("confirm-action").addEventListener("click", () => byID("confirm").close("yes"));
byID("confirm-cancel").addEventListener("click", () => byID("confirm").close(""));

function showKey(reply) {
  steering.keyForm.hidden = reply !== null;
  byID("key-known").hidden = reply === null;
  steering.actions.hidden = reply?.scope !== "steer";
  if (reply === null) return forgetID();
  setText(byID("key-name"), reply.name);
  setText(byID("key-scope"), reply.scope === "steer" ? "may steer the server" : "may read, and not steer");
}

function forgetID() {
  steering.id = null;
  steering.found.hidden = true;
  byID("delete").hidden = true;
}

async function useKey(secret) {
  try {
    const reply = await ask("/key", undefined, secret);
    key.secret = secret;
    showKey(reply);
    return reply;
  } catch (error) {
    if (error instanceof Refusal) key.secret = null;
    showKey(null);
    throw error;
  }
}

function forgetKey(reason) {
  key.secret = null;
  showKey(null);
  announce(reason);
}

// Carries out an action and announces what came of it.
async function act(work) {
  steering.card.setAttribute("aria-busy", "true");
  try {
    announce(await work());
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) forgetKey("");
    announce(`It did not work: ${error.message}`, true);
  }
  steering.card.removeAttribute("aria-busy");
}

// The server may take this long, for example to read many files.
const ACTION_TIMEOUT = 30000;

steering.keyForm.addEventListener("submit", event => {
  event.preventDefault();
  const secret = steering.keyField.value.trim();
  steering.keyField.value = "";
  if (!secret) return announce("Enter an admin key.", true);
  act(async () => {
    const reply = await useKey(secret);
    keepPolling();
    return `The key ${reply.name} is used until this tab is closed.`;
  });
});
byID("forget").addEventListener("click", () => {
  forgetKey("The key is forgotten.");
  steering.keyField.focus();
  keepPolling();
});

byID("reload").addEventListener("click", () => act(async () => {
  const { outcome } = await ask("/reload", null, key.secret, ACTION_TIMEOUT);
  settingsCard.load();
  return `Reloaded: ${outcome}`;
}));

byID("drain").addEventListener("click", async () => {
  const question = "Drain this server? It answers what it has received, takes no new connections, and stops. It starts again only "
    + "if a service manager or a person starts it.";
  if (!await confirmed(question, "Drain and stop")) return announce("Not drained.");
  act(async () => {
    await ask("/drain", null, key.secret, ACTION_TIMEOUT);
    return "The server finishes what it has received and stops.";
  });
});

steering.idField.addEventListener("input", forgetID);
steering.idForm.addEventListener("submit", event => {
  event.preventDefault();
  const id = steering.idField.value;
  forgetID();
  if (!id) return announce("Enter the id.", true);
  act(async () => {
    const reply = await ask("/token", { unique_id: id }, key.secret, ACTION_TIMEOUT);
    if (!reply.found) return "There is no token under this id.";
    steering.id = id;
    steering.found.hidden = false;
    byID("delete").hidden = false;
    setText(byID("found-size"), bytes(reply.size));
    setText(byID("found-age"), `${span(reply.age_seconds)}, since ${reply.stored_at}`);
    setText(byID("found-expiry"), reply.expires_at ?? "never");
    return `There is a token of ${bytes(reply.size)}, stored ${span(reply.age_seconds)} ago.`;
  });
});
byID("delete").addEventListener("click", async () => {
  const id = steering.id;
  if (id === null || !await confirmed("Delete the token of this id? This cannot be undone.", "Delete")) return announce("Not deleted.");
  act(async () => {
    const { deleted } = await ask("/token/delete", { unique_id: id }, key.secret, ACTION_TIMEOUT);
    forgetID();
    steering.idField.value = "";
    return deleted ? "The token is deleted." : "There was no token under this id any more.";
  });
});

// Whether the server shows nothing without a key; then only the field for it is there.
function setLocked(isLocked, reason) {
  if (document.body.classList.contains("locked") === isLocked) return;
  document.body.classList.toggle("locked", isLocked);
  if (!isLocked) return announce("");
  showKey(null);
  announce(reason, true);
  steering.keyField.focus();
}

showKey(null);
if (key.secret) useKey(key.secret).catch(error => announce(`The key of this tab is not used: ${error.message}`, true));
