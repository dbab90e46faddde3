// The settings in force, where each comes from, and what waits for a restart.

class SettingsCard {
  constructor() {
    this.card = byID("settings");
    this.body = this.card.querySelector("tbody");
    this.all = byID("settings-all");
    this.list = [];
    this.card.addEventListener("toggle", () => { if (this.card.open) this.load(); });
    this.all.addEventListener("change", () => this.show());
  }

  async load() {
    if (!this.card.open) return;
    const problem = this.card.querySelector(".problem");
    try {
      this.list = (await ask("/settings")).settings;
      setText(problem, "");
    } catch (error) {
      setText(problem, `The settings cannot be shown: ${error.message}`);
    }
    this.show();
  }

  show() {
    this.body.replaceChildren();
    // Compares values rather than sources, because a settings file may set a setting to its default.
    const shown = this.list.filter(
      ({ value, default: usual, after_restart }) => this.all.checked || value !== usual || after_restart !== undefined);
    for (const { key, value, source, after_restart, default: usual } of shown) {
      const line = element(this.body, "tr");
      element(line, "th", { scope: "row" }, key);
      const cell = element(line, "td", {}, value);
      if (after_restart !== undefined) element(cell, "em", {}, ` ${after_restart} after a restart`);
      element(line, "td", {}, source);
      element(line, "td", {}, usual);
    }
    byID("settings-none").hidden = shown.length > 0;
  }
}
const settingsCard = new SettingsCard();
