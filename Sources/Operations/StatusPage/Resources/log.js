// The last lines of the log that warn of something.

class LogCard {
  constructor() {
    this.number = -1;
    this.card = byID("log");
    this.body = this.card.querySelector("tbody");
    this.note = this.card.querySelector(".empty");
  }

  forget() {
    this.number = -1;
  }

  // Requests the lines if there are new ones. number: how many lines there have been since the start.
  async update(number) {
    if (number === this.number) return;
    const { lines } = await ask("/log");
    this.number = number;
    this.body.replaceChildren();
    for (const { time, level, text } of lines.reverse()) {
      const line = element(this.body, "tr", { "data-level": level });
      element(line, "th", { scope: "row" }, moment(time));
      element(line, "td", {}, level);
      element(line, "td", {}, text);
    }
    this.note.hidden = lines.length > 0;
    this.card.querySelector(".scroll thead").hidden = lines.length === 0;
  }
}
const logCard = new LogCard();
