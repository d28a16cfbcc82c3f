// Rows page by page. They are asked for while they can be seen, and again with a batch, but not before ten times as long as the answer took.
// `question` returns a path, its parameters and the name of its rows, `columns` those of a table of rows.
function paged(id, question, columns, caption, keyOf) {
  const pages = [{ cursor: null, from: 1 }], told = made("span", { role: "status" });
  const step = (text, change) => made("button", { type: "button", class: "step", onclick: () => { change(); show().catch(look); } }, text);
  const first = step("First page", () => pages.splice(1)), back = step("Page before", () => pages.pop()), next = step("Next page", () => pages.push(answer.next));
  const table = made("table", {}, made("caption", { class: "unseen" }, caption), made("thead"), made("tbody")), scroll = made("div", { class: "scroll" }, table);
  let answer = null, due = 0, turn = 0, asking = false;
  at(id).append(made("p", { class: "bar" }, told, first, back, next), scroll);

  async function show() {
    const mine = ++turn, began = Date.now(), page = pages[pages.length - 1], { path, parameters, list } = question();
    let found;
    asking = true;
    try { found = await ask(path, { ...parameters, ...(page.cursor ? { cursor: page.cursor } : {}) }); } catch (error) {
      if (error.status === 401 || !error.status) throw error;
      if (mine === turn) { say(told, error.message); scroll.hidden = true; }
      return;
    } finally { if (mine === turn) { asking = false; due = Date.now() + 10 * (Date.now() - began); } }
    if (mine !== turn) return;
    const rows = found[list];
    answer = { next: found.cursor && { cursor: found.cursor, from: page.from + rows.length } };
    say(told, rows.length ? `Rows ${exact(page.from)} to ${exact(page.from + rows.length - 1)}, as of batch ${exact(found.batch_id)}, from the ${found.served_by === "store" ? "stores" : "tables"}.` : found.cursor ? "None here, and more to look at." : page.from > 1 ? "There are no more." : "There are none.");
    first.hidden = back.hidden = pages.length < 2;
    next.hidden = !found.cursor;
    scroll.hidden = !rows.length;
    if (rows.length) fill(table, columns(rows), rows.map((row, at) => ({ ...row, at })), row => keyOf(row) + " " + row.at);
    else scroll.previousElementSibling.matches(".hint") && (scroll.previousElementSibling.hidden = true);
  }
  first.hidden = back.hidden = next.hidden = scroll.hidden = true;
  return {
    restart: () => { pages.splice(1); return show(); },
    follow: () => { if (!asking && Date.now() >= due) show().catch(look); },
  };
}
