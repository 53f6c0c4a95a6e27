// The two drawn views: Plotly figures, and bases coloured by probability. Text from outside becomes
// text nodes alone, never markup.
"use strict";

window.carbon = (() => {
  const BASES = "ATCG"; // the order of alternatives

  // With a <base>, Plotly names its clip paths and gradients by the page's address of the moment,
  // and loses them when that comes to hold another state; "./" changes no other address.
  document.querySelector("base")?.remove();

  const whenLoaded = (work) => (window.Plotly ? work() : setTimeout(() => whenLoaded(work), 30));

  const template = () => {
    // A property of Gradio's theme, because the colour of an element fades when day turns to night.
    const ink = getComputedStyle(document.body).getPropertyValue("--body-text-color").trim();
    const axis = { gridcolor: "rgba(128,128,128,0.25)", zerolinecolor: "rgba(128,128,128,0.5)",
                   linecolor: "rgba(128,128,128,0.5)", automargin: true };
    return { layout: {
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 50, r: 12, t: 36, b: 40 }, xaxis: axis, yaxis: axis,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      hoverlabel: { font: { family: "ui-monospace, monospace" } },
      colorway: ["#0072B2", "#D55E00", "#888888"],
    } };
  };

  // Buttons that save a figure as it is seen, on the page's own ground.
  const saves = (kind, target) => ({
    name: `Save as ${kind}`,
    icon: kind === "PNG" ? Plotly.Icons.camera : Plotly.Icons.disk,
    click: () => {
      const paper = getComputedStyle(document.body).backgroundColor;
      const { data, layout } = target;
      const size = { width: target.clientWidth, height: target.clientHeight };
      Plotly.downloadImage({ data, layout: { ...layout, paper_bgcolor: paper } },
                           { ...size, format: kind.toLowerCase(), scale: kind === "PNG" ? 2 : 1,
                             filename: `carbon-${target.closest("[id^=view-]").id.slice(5)}` });
    },
  });

  // A figure: props.value is {data, layout}; a click triggers `select` with the point's customdata.
  const figure = (element, props, trigger, watch) => {
    const draw = () => whenLoaded(() => {
      const target = element.querySelector(".figure");
      if (!target) return;
      target.hidden = !props.value?.data;
      if (target.hidden) return document.querySelector("#status .wrong")?.scrollIntoView({ block: "nearest" });
      const { data, layout, frames } = props.value;
      target.style.height = `${layout.height || 320}px`;
      // Letters are drawn where each has room for itself.
      const [left, right] = layout.xaxis?.range ?? [];
      const room = (target.clientWidth - 62) / (right - left);
      const fit = data.filter((trace) => !(room < trace.meta?.least_pixels_per_base));
      const config = { displaylogo: false, responsive: true, scrollZoom: false,
                       doubleClick: layout.meta?.follows ? "autosize" : "reset+autosize",
                       modeBarButtonsToRemove: ["lasso2d", "select2d", "toImage", "sendChartToCloud", "sendDataToCloud"],
                       modeBarButtonsToAdd: ["PNG", "SVG"].map((kind) => saves(kind, target)) };
      Plotly.react(target, { data: fit, layout: { ...layout, template: template() }, config,
                             frames });
      if (!target.dataset.listens) {
        target.dataset.listens = "yes";
        if (props.value.plays) {
          document.addEventListener("click", (event) => {
            if (!event.target.closest("[data-replay]")) return;
            target.scrollIntoView({ block: "nearest" });
            Plotly.animate(target, null, props.value.plays);
          });
        }
        target.on("plotly_click", (event) => {
          const picked = event.points[0].customdata;
          if (picked !== undefined && picked !== null) trigger("select", { picked });
        });
        let later = 0;
        target.on("plotly_relayout", (change) => {
          if (!props.value?.layout.meta?.follows) return;
          const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
          if (range[0] === undefined && !change["xaxis.autorange"]) return;
          clearTimeout(later);
          later = setTimeout(() => trigger("select", { picked: { range } }), 300);
        });
        new MutationObserver(draw).observe(document.body, { attributeFilter: ["class"] });
      }
    });
    let drawn = "";
    const drawIfNew = () => {
      const asked = JSON.stringify(props.value);
      if (asked === drawn) return;
      drawn = asked;
      draw();
    };
    watch("value", drawIfNew);
    drawIfNew();
  };

  const tip = (value, at) => {
    const number = at + 1;
    if (at < value.prompt_bp) return `base ${number}: ${value.bases[at]}, from the input`;
    const percent = (share) => `${(100 * share).toFixed(1)} %`;
    const own = value.probabilities[at - value.prompt_bp], p = value.alternatives[at - value.prompt_bp];
    if (!p) return `base ${number}: ${value.bases[at]} ${percent(own)}`;
    const each = [...BASES].map((base, n) => [base, p[n]]).sort((a, b) => b[1] - a[1]);
    return `base ${number}: ${value.bases[at]}   ` +
      each.map(([base, share]) => `${base} ${percent(share)}`).join("   ");
  };

  // Bases: props.value is {title, bases, prompt_bp, probabilities, alternatives, range}. New bases
  // are appended to those on the page. The arrow keys move along; the tip describes one base.
  const bases = (element, props, trigger, watch) => {
    const [strip, key] = [".strip", ".key"].map((name) => element.querySelector(name));
    const heading = document.createElement("h3");
    strip.before(heading);
    let at = 0, drawn = null;
    const spans = () => strip.querySelectorAll(".base");
    const mark = (next) => {
      const all = spans();
      if (!all.length) return;
      all[Math.min(at, all.length - 1)].classList.remove("here");
      at = Math.max(0, Math.min(next, all.length - 1));
      all[at].classList.add("here");
      element.querySelector(".tip").textContent = tip(props.value, at);
    };
    const shade = (value, n) => {
      if (n < value.prompt_bp) return "base given";
      const [low, high] = value.range, p = value.probabilities[n - value.prompt_bp];
      return `base p${Math.max(0, Math.min(9, Math.floor(10 * (p - low) / (high - low))))}`;
    };
    const append = (value, from) => {
      let ten = strip.lastElementChild;
      const shown = document.createDocumentFragment();
      for (let n = from; n < value.bases.length; n++) {
        if (n % 10 === 0) {
          ten = document.createElement("span");
          ten.className = "ten";
          ten.dataset.first = n + 1;
          shown.append(ten);
        }
        const span = document.createElement("span");
        span.className = shade(value, n);
        span.textContent = value.bases[n];
        span.dataset.at = n;
        ten.append(span);
      }
      strip.append(shown);
    };
    const nameColors = ([low, high]) => key.querySelectorAll("span").forEach((span, n) => {
      span.textContent = Math.round(100 * (low + n * (high - low) / 10));
      key.lastChild.textContent = `${Math.round(100 * high)} % or more; paler: your bases`;
    });
    const draw = () => {
      const value = props.value?.bases ? props.value : null;
      element.classList.toggle("empty", !value);
      const goesOn = value && drawn && value.prompt_bp === drawn.prompt_bp &&
        value.title === drawn.title && value.bases.startsWith(drawn.bases);
      const first = goesOn ? drawn.bases.length : 0;
      if (!goesOn) strip.replaceChildren();
      const scale = value && String(value.range);
      if (goesOn && scale !== drawn.scale) {
        spans().forEach((span, n) => { span.className = shade(value, n); });
      }
      drawn = value && { bases: value.bases, prompt_bp: value.prompt_bp, title: value.title, scale };
      if (!value) return;
      heading.textContent = value.title;
      nameColors(value.range);
      append(value, first);
    };
    element.addEventListener("mouseover", (event) => {
      if (event.target.dataset.at !== undefined) mark(Number(event.target.dataset.at));
    });
    element.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 6, ArrowUp: -6 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      mark(at + step);
    });
    watch("value", draw);
    draw();
  };

  // What goes along to other pages: the model in every link, the input where pages have one.
  const CARRIED = ["base_model", "input"];

  const carryAlong = () => {
    const here = new URLSearchParams(location.search);
    document.querySelectorAll("nav.pages a").forEach((link) => {
      const to = new URL(link.href);
      for (const name of CARRIED) {
        to.searchParams.delete(name);
        if (here.has(name) && to.pathname !== "/") to.searchParams.set(name, here.get(name));
      }
      link.href = to.href;
    });
  };

  // Names of genes under the main field, as they are typed.
  const MOST_SUGGESTIONS = 6;
  let genes = null;
  const suggest = async (field) => {
    const box = document.getElementById("suggestions") || Object.assign(
      document.createElement("div"), { id: "suggestions" });
    field.closest("#input").append(box);
    const typed = field.value.trim().toUpperCase();
    genes ??= fetch("/carbon/genes.json").then((answer) => answer.json());
    const all = await genes;
    if (field.value.trim().toUpperCase() !== typed) return;
    const near = typed && !all.includes(typed) ?
      all.filter((name) => name.toUpperCase().startsWith(typed)).slice(0, MOST_SUGGESTIONS) : [];
    box.replaceChildren(...near.map((name) => {
      const button = Object.assign(document.createElement("button"), { className: "chip", textContent: name });
      button.addEventListener("click", () => {
        field.value = name;
        field.dispatchEvent(new Event("input", { bubbles: true }));
        box.replaceChildren();
        setTimeout(() => document.querySelector("button.primary").click(), 50);
      });
      return button;
    }));
  };

  // A link to another state of this page is answered in place; so is the browser's Back.
  const links = (trigger) => {
    document.title = document.querySelector("meta[property='og:title']").content;
    carryAlong();
    document.querySelector("nav.pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    document.addEventListener("input", (event) => {
      if (event.target.closest?.("#input")) suggest(event.target);
    });
    document.addEventListener("click", (event) => {
      const copy = event.target.closest?.("[data-copy]");
      if (copy) {
        const field = copy.parentElement.querySelector("input");
        field.select();
        navigator.clipboard?.writeText(field.value).then(() => { copy.textContent = "Copied"; });
      }
      const link = event.target.closest?.("a[href]");
      const elsewhere = !link || link.origin !== location.origin || link.hash ||
        link.hasAttribute("download");
      if (elsewhere || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const to = new URL(link.href), here = to.pathname === location.pathname;
      const model = new URLSearchParams(location.search).get("base_model");
      if (model && !to.searchParams.has("base_model")) to.searchParams.set("base_model", model);
      else if (!here) return;
      event.preventDefault();
      if (!here) return location.assign(to);
      history.pushState(null, "", to);
      trigger("select", { picked: to.search });
    });
    window.addEventListener("popstate", () => trigger("select", { picked: location.search }));
  };

  // Returns the whole address of a state, which is the page's own from then on.
  const showAddress = (link, change) => {
    document.querySelectorAll(".upload-container").forEach((e) => e.removeAttribute("aria-label")); // not what is on it
    const { href, pathname } = new URL(link || location.href, location.href);
    if (pathname !== location.pathname) {
      location[change === "pushState" ? "assign" : "replace"](href);
      return link && href;
    }
    if (href !== location.href) history[change](null, "", href);
    carryAlong();
    document.querySelectorAll(".share input").forEach((field) => { field.value = href; });
    const seen = () => document.getElementById("status").scrollIntoView({ block: "nearest" });
    if (change === "pushState") { seen(); setTimeout(seen, 300); } // figures come and go
    return link && href;
  };

  return { figure, bases, links, showAddress };
})();
