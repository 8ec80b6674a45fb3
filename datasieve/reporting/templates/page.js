"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("js");

  // Long lists: a script beside the page holds the data, since a page on disk may not read other files.
  const waiting = new Map();
  window.datasieveList = (key, rows) => waiting.get(key)?.(rows);
  const load = (key) =>
    new Promise((resolve, reject) => {
      waiting.set(key, resolve);
      const script = document.createElement("script");
      script.src = `page-data/${key}.js`;
      script.onerror = () => reject(new Error(key));
      document.head.append(script);
    });

  const fill = (node, item) => {
    for (const slot of all("[data-slot]", node)) {
      const name = slot.dataset.slot;
      const value = item[name] ?? "";
      if (name.endsWith("link")) {
        if (/^file:/.test(value)) slot.setAttribute("href", value);
      } else if (slot.tagName === "IMG") {
        slot.hidden = !value;
        if (value) slot.src = value;
        slot.alt = (item[name.replace("thumb", "name")] ?? "") + slot.alt;
      } else {
        slot.textContent = value;
        slot.hidden = !value;
      }
    }
    return node;
  };

  for (const pager of all(".pager")) {
    const { list, kind } = pager.dataset;
    const size = Number(pager.dataset.size);
    const total = Number(pager.dataset.items);
    const place = document.getElementById(`${list}-list`);
    const shape = document.getElementById(`item-${kind}`);
    const [back, next] = all("button", pager);
    const told = pager.querySelector("[role=status]");
    let at = 0;
    let rows = null;
    pager.hidden = false;
    const turn = async (step) => {
      try {
        rows ??= load(list);
        const items = await rows;
        at = Math.max(0, Math.min(at + step, Math.ceil(total / size) - 1));
        place.replaceChildren(
          ...items.slice(at * size, (at + 1) * size).map((item) => fill(shape.content.cloneNode(true), item)),
        );
        told.textContent = `${at * size + 1}–${Math.min((at + 1) * size, total)} of ${total}`;
        const ends = [at === 0, (at + 1) * size >= total];
        // A button that is switched off loses the focus; the other one takes it.
        const held = [back, next].indexOf(document.activeElement);
        [back.disabled, next.disabled] = ends;
        if (held >= 0 && ends[held]) [next, back][held].focus();
      } catch {
        rows = null;
        told.textContent = `page-data/${list}.js is not beside this page; write the page anew with: datasieve page`;
      }
    };
    back.addEventListener("click", () => turn(-1));
    next.addEventListener("click", () => turn(1));
  }

  // Charts: pointing at a mark shows its picture; arrow keys walk from mark to mark.
  const tip = document.getElementById("tip");
  const [image, name, note] = tip.children;
  let current = null;
  const hide = () => {
    tip.hidden = true;
    current?.classList.remove("current");
    current = null;
  };
  const show = (dot) => {
    if (dot === current) return;
    hide();
    current = dot;
    dot.classList.add("current");
    image.hidden = !dot.dataset.thumb;
    if (dot.dataset.thumb) image.src = dot.dataset.thumb;
    name.textContent = dot.dataset.name;
    note.textContent = dot.dataset.note;
    tip.hidden = false;
    place();
  };
  const place = () => {
    const box = current.getBoundingClientRect();
    const wide = tip.offsetWidth;
    const left = box.right + 12 + wide < root.clientWidth ? box.right + 12 : box.left - 12 - wide;
    const top = Math.min(box.top - 20, root.clientHeight - tip.offsetHeight - 8);
    tip.style.left = `${Math.max(8, Math.min(left, root.clientWidth - wide - 8))}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  };
  const open = (dot) => dot?.dataset.link && window.open(dot.dataset.link, "_blank", "noopener");
  for (const chart of all("[data-chart]")) {
    const dots = all(".dot", chart);
    // The browser's own tooltip would come on top of ours.
    for (const dot of dots) dot.querySelector("title")?.remove();
    const dotAt = (event) => event.target.closest(".dot");
    chart.addEventListener("pointerover", (event) => dotAt(event) && show(dotAt(event)));
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("click", (event) => open(dotAt(event)));
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        const from = dots.indexOf(current);
        show(dots[from < 0 ? (step > 0 ? 0 : dots.length - 1) : (from + step + dots.length) % dots.length]);
        event.preventDefault();
      } else if (event.key === "Home" || event.key === "End") {
        show(dots.at(event.key === "Home" ? 0 : -1));
        event.preventDefault();
      } else if (event.key === "Enter") open(current);
      else if (event.key === "Escape") hide();
    });
  }
  // Scrolling takes a mark from under the pointer, but not from under the keyboard.
  const moved = () => current && (current.closest("[data-chart]") === document.activeElement ? place() : hide());
  document.addEventListener("scroll", moved, { passive: true, capture: true });

  // Before and after. Listened for on the page, since sliders come and go with the lists.
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-slide]")) return;
    event.target.closest(".change").style.setProperty("--cut", `${event.target.value}%`);
  });

  for (const button of all("[data-copy]")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 1600);
    });
  }

  // What is folded away on the screen is printed.
  window.addEventListener("beforeprint", () => all("details").forEach((one) => (one.open = true)));

  // A link to a rule among the notes opens them.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && target.closest("details:not([open])");
    if (closed) {
      closed.open = true;
      target.scrollIntoView();
    }
  };
  window.addEventListener("hashchange", reveal);
  reveal();
})();
