'use strict';
/* The page of a run: draws the model that `home/records.py` describes. All of the session's text gets into the document as
   text nodes and attributes, never as markup: the page's policy refuses markup made from strings (trusted types). */
const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
const SVG = 'http://www.w3.org/2000/svg', ON_SVG = new Set(['svg', 'rect', 'circle', 'polyline', 'text', 'title', 'path', 'pattern']);
/* An element: `h('div.a.b', {title, on: {click}, css: {width}}, child, …)`; null and false children are left out. */
function h(tag, props, ...kids) {
  const [name, ...classes] = tag.split('.');
  const e = ON_SVG.has(name) && (props?.ns !== false) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) e.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value == null || key === 'ns' || (value === false && !key.startsWith('aria-'))) continue;
    if (key === 'css') for (const [k, v] of Object.entries(value)) e.style.setProperty(k, v);
    else if (key === 'data') Object.assign(e.dataset, value);
    else e.setAttribute(key, value === true && !key.startsWith('aria-') ? '' : value);
  }
  e.append(...kids.flat(3).filter(k => k != null && k !== false && k !== ''));
  return e;
}
const put = (where, ...kids) => $(where).replaceChildren(...kids.flat(3).filter(k => k != null && k !== false && k !== ''));
const fmt = n => Math.round(n).toLocaleString('en');
const dur = ns => ns >= 1e9 ? (ns / 1e9).toFixed(2) + ' s' : ns >= 1e6 ? (ns / 1e6).toFixed(2) + ' ms' : ns >= 1e3 ? (ns / 1e3).toFixed(ns < 1e4 ? 2 : 1) + ' µs' : Math.round(ns) + ' ns';
const size = b => b >= 1e9 ? (b / 1e9).toFixed(2) + ' GB' : b >= 1e6 ? (b / 1e6).toFixed(2) + ' MB' : b >= 1e3 ? (b / 1e3).toFixed(1) + ' kB' : Math.round(b) + ' B';
const saved = r => share(r.gain) + (r.judged === 'filled' ? ' on a full GPU' : '');
const share = x => x >= .0095 ? Math.round(100 * x) + ' %' : x > 0 ? '<1 %' : '0 %';
const num = x => typeof x === 'number' ? (Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : +x.toPrecision(4)) : x;
const many = (n, word) => `${fmt(n)} ${word}${n === 1 ? '' : 's'}`;
const HOW = {
  measured: 'on a GPU, by its own clock', predicted: 'by the cost model of advise', interpreted: 'counted or timed while kernels were interpreted',
  compiled: 'of the machine code', sampled: 'samples of warps on a GPU', timeline: 'by the clocks of warps on a GPU', 'fixes it': 'the launch was run again with this edit',
};
const tag = (t, title) => t ? h('span.tag', {title: title ?? HOW[t] ?? ''}, t) : null;
const HEATS = {stalls: ['stalls', 'sampled'], timeline: ['cycles of warps', 'timeline'], predicted: ['time', 'predicted'], instructions: ['instructions', ''], sectors: ['sectors moved', 'interpreted']};
const STAGES = {'tile-ir': 'Tile IR', 'gpu-ir': 'GPU IR', 'llvm-ir': 'LLVM', ptx: 'PTX', sass: 'SASS', ttir: 'TTIR', ttgir: 'TTGIR'};

/* ---- the model, and what is looked at ---- */
let M, RUNS = [], CODES = [], COMPARED = null;
const S = {run: 0, k: 0, v: 0, line: '', stage: '', heat: '', view: 'home', open: new Set(), unfold: new Set(), launch: 0, z: [0, 1], sort: {}};
const K = () => M.kernels[S.k], V = () => K()?.variants?.[S.v];
const code = () => CODES[S.run]?.[V()?.key];
const keyOf = p => p[0] + ':' + p[1], fileOf = key => key.slice(0, key.lastIndexOf(':')), lineOf = key => +key.slice(key.lastIndexOf(':') + 1);
const nameOf = key => (M.byFile.get(fileOf(key))?.name ?? fileOf(key).split('/').at(-1)) + ':' + lineOf(key);
const textOf = key => M.byFile.get(fileOf(key))?.rows[lineOf(key) - 1] ?? '';
const colour = k => k < 0 ? 'var(--kt)' : `var(--k${Math.min(k, 5)})`;
function adopt(model) {
  model.kernels ??= []; model.faults ??= []; model.remarks ??= []; model.launches ??= []; model.steps ??= []; model.files ??= []; model.strip ??= {};
  model.strip.tracks ??= [];
  model.byFile = new Map(model.files.map(f => [f.file, {...f, rows: (f.text ?? '').split('\n')}]));
  for (const kernel of model.kernels) for (const variant of kernel.variants ??= []) {
    variant.at = new Map((variant.lines ?? []).map(l => [keyOf(l.place), l]));
    variant.callers = new Map();
    for (const l of variant.lines ?? []) if (l.place[0] === kernel.file && l.place[1] >= kernel.line && l.place[1] <= kernel.end_line)
      for (const p of l.calls ?? []) variant.callers.set(keyOf(p), (variant.callers.get(keyOf(p)) ?? 0) + 1);
  }
  return model;
}
const lineAt = key => V()?.at.get(key);
const faultsAt = key => (lineAt(key)?.faults ?? []).map(n => M.faults[n]);
const remarksAt = key => (lineAt(key)?.remarks ?? []).map(n => M.remarks[n]);
const ownHeat = key => lineAt(key)?.heat?.[S.heat] ?? 0;
/* What is inlined at a line counts there while it is folded, if nothing else of the kernel calls it. */
function heatOf(key) {
  const calls = lineAt(key)?.calls;
  if (!calls || S.unfold.has(key)) return ownHeat(key);
  return ownHeat(key) + calls.reduce((a, p) => a + (V().callers.get(keyOf(p)) === 1 ? ownHeat(keyOf(p)) : 0), 0);
}
/* All findings in the order in which they are gone through. */
function findings() {
  const faults = M.faults.filter(f => f.place && f.state === 'open').map(f => ({type: 'fault', n: f.number, variant: f.variant, kernel: f.kernel, key: keyOf(f.place), f}));
  const remarks = M.remarks.filter(r => r.gain > 0).map(r => ({type: 'advice', n: r.number, variant: r.variant, kernel: r.kernel, key: keyOf(r.place), r}));
  return [...faults, ...remarks];
}
function seek(variant, kernel) {
  for (const [k, one] of M.kernels.entries()) for (const [v, w] of one.variants.entries()) if (variant && w.key === variant) return [k, v];
  const k = M.kernels.findIndex(one => one.name === kernel);
  return k < 0 ? null : [k, 0];
}
/* Where a kernel opens: at its first fault, else where it takes most time. */
function opening() {
  const v = V();
  if (!v) return K()?.file ? K().file + ':' + K().line : '';
  const first = M.faults.find(f => f.place && f.state === 'open' && v.at.get(keyOf(f.place))?.faults?.includes(f.number));
  if (first) return keyOf(first.place);
  const step = M.remarks.find(r => r.gain > 0 && r.variant === v.key);
  if (step) return keyOf(step.place);
  const by = v.heats?.[0];
  const hot = (v.lines ?? []).filter(l => l.heat?.[by] && l.place[0] === K().file).sort((a, b) => b.heat[by] - a.heat[by])[0];
  return hot ? keyOf(hot.place) : K().file + ':' + K().line;
}
const firstLaunch = () => M.launches.find(l => l.kernel === S.k && l.variant === V()?.key)?.seq ?? 0;

/* ---- colours of code ---- */
const PY = /(#.*$)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|for|in|if|else|elif|return|import|from|as|while|and|or|not|assert|with|None|True|False|lambda|class|is)\b|(\btl(?:\.\w+)+|@[\w.]+|\btriton(?:\.\w+)+|\b(?:min|max|range)\b(?=\())|\b(\d+(?:\.\d+)?(?:e-?\d+)?)\b/g;
function py(text) {
  const out = []; let at = 0;
  for (const m of text.matchAll(PY)) {
    if (m.index > at) out.push(text.slice(at, m.index));
    out.push(h('span.' + (m[1] != null ? 'c' : m[2] != null ? 's' : m[3] != null ? 'k' : m[4] != null ? 't' : 'n'), null, m[0]));
    at = m.index + m[0].length;
  }
  return [...out, text.slice(at)];
}
const MEMORY = /^(LDG|STG|LDS|STS|LDSM|LDL|STL|HGMMA|HMMA|IMMA|WARPGROUP|BAR|UTMA|ATOM|RED|LDGSTS|SYNCS|ld|st|wgmma|mma|bar|cp|atom|red|ldmatrix|mbarrier)/;
function ir(text, stage) {
  const m = stage === 'sass' ? /^(@!?U?P\d+ )?([A-Z][A-Z0-9_.]*)/.exec(text) : stage === 'ptx' ? /^(\s*@!?%p\d+ |\s*)([a-z][\w.:]*)/.exec(text) : null;
  if (m) return [m[1] ? h('span.m', null, m[1]) : null, h('span.' + (MEMORY.test(m[2]) ? 'x' : 'o'), null, m[2]), text.slice(m[0].length)];
  const op = /^(.*?)\b((?:tt|ttg|ttng|arith|scf|math|nvvm|cf)\.\w+)(.*?)( : .*)?$/.exec(text);
  return op ? [op[1], h('span.o', null, op[2]), op[3], op[4] ? h('span.m', null, op[4]) : null] : [text];
}

/* ---- pictures ---- */
function picture(p) {
  const r = x => +x.toFixed(2);
  const marks = (p.marks ?? []).map(m => {
    if (m.text != null) return h('text.T-' + m.role, {x: r(m.x), y: r(m.y), 'text-anchor': m.anchor}, m.text);
    if (m.radius != null) return h('circle.D-' + m.role, {cx: r(m.x), cy: r(m.y), r: m.radius}, m.title ? h('title', null, m.title) : null);
    if (m.points) return h('polyline.L-' + m.role + (m.dashed ? '.L-dash' : ''), {points: m.points.map(q => q.map(r).join(',')).join(' ')});
    return h('rect.' + (m.outline ? 'O-' : 'B-') + m.role, {x: r(m.x), y: r(m.y), width: r(m.width), height: r(m.height), opacity: m.weight === 1 ? null : r(m.weight)}, m.title ? h('title', null, m.title) : null);
  });
  return h('svg.pic', {width: r(p.width), height: r(p.height), viewBox: `0 0 ${r(p.width)} ${r(p.height)}`, role: 'img', 'aria-label': p.label}, marks);
}
const figure = p => h('figure', null, picture(p), h('figcaption', null, h('b', null, p.kind[0].toUpperCase() + p.kind.slice(1) + '. '), p.caption));

/* ---- header ---- */
function header() {
  const run = M.run, v = M.verdict, glyph = {fault: '✖', warning: '▲', clean: '✓'}[v.level];
  $('#verdict').className = 'verdict ' + v.level; put('#verdict', `${glyph} ${v.text}`);
  put('#sum', h('b', null, fmt(run.launches)), run.launches === 1 ? ' launch of ' : ' launches of ', h('b', null, fmt(M.kernels.length)), ` kernel${M.kernels.length === 1 ? '' : 's'}`,
    run.exit_status ? ` · exit status ${run.exit_status}` : null,
    run.total_ns ? [' · ', h('b', null, dur(run.total_ns)), run.basis === 'predicted' && run.machine ? ` on an ${run.machine} ` : ' in kernels ', tag(run.basis, run.basis === 'predicted' ? `${HOW.predicted}, for an ${run.machine} ${run.ceilings}` : null)] : null);
  $('#runs').hidden = RUNS.length < 2; put('#runs', RUNS.map((_, i) => h('button', {'aria-pressed': S.run === i, data: {run: i}}, ['after', 'before'][i])));
  const steps = M.steps.map(s => {
    const c = {mismatch: ['✖', 'bad'], fault: ['✖', 'bad'], warning: ['▲', 'warn'], advice: ['◆', 'adv']}[s.kind];
    const key = s.place ? keyOf(s.place) : '';
    return h('button', {data: {variant: s.variant ?? '', key, fault: s.kind === 'advice' ? '' : s.number}}, h('span.' + c[1], {'aria-hidden': 'true'}, c[0]), h('span.t', null, key ? [h('b', null, nameOf(key)), ' '] : null, s.text, s.gain ? `, saves ${saved(M.remarks[s.number])}` : null));
  });
  const missing = (run.not_looked_for ?? []).join(', ');
  put('#next', h('h2', null, 'Next'), steps.length ? steps : h('span.mut', null, missing ? ticked(`Nothing was found. Not looked for: ${missing} (\`--check all\` does).`) : M.remarks.length || M.run.mode?.includes('native') ? 'Nothing was found.' : ticked('Nothing was found. `tkdebug run --check all` looks for more, `--advise` for what would be faster.')));
  const passes = code()?.passes?.length ?? 0, watched = (V()?.lines ?? []).some(l => l.watches);
  const tabs = [['home', 'Source'], COMPARED && ['compare', 'Compare'], ['launches', 'Launches', M.run.launches], M.faults.length && ['faults', 'Faults', M.faults.length], M.remarks.length && ['advice', 'Advice', M.remarks.length], passes && ['passes', 'Passes', passes], watched && ['values', 'Values'], (M.others?.length || M.model_lines?.length) && ['others', 'Others'], ['output', 'Output']].filter(Boolean);
  put('#tabs', tabs.map(([view, text, n]) => h('button', {role: 'tab', 'aria-selected': S.view === view, tabindex: S.view === view ? 0 : -1, data: {view}}, text, n ? h('sup', null, fmt(n)) : null)));
  put('#status', [['j', 'k', 'line'], ['n', '', 'next finding'], ['[', ']', 'zoom'], ['←', '→', 'launch'], ['1', '5', 'stage'], ['u', '', 'unfold'], ['/', '', 'search'], ['?', '', 'all keys']].map(([a, b, t]) => h('span', null, h('kbd', null, a), b ? h('kbd', null, b) : null, t)), h('span.sp', null, (M.left_out ?? []).length ? `left out: ${M.left_out[0]}${M.left_out.length > 1 ? ', …' : ''}` : [run.versions?.tkdebug && `tkdebug ${run.versions.tkdebug}`, run.versions?.torch && `torch ${run.versions.torch}`].filter(Boolean).join(', ')));
  $('#status .sp').title = (M.left_out ?? []).join('\n');
}

/* ---- left ---- */
function spark(buckets, c) {
  const means = buckets.map(b => b[1] / b[0]), most = Math.max(...means), w = 62 / means.length;
  return h('svg', {viewBox: '0 0 62 15', 'aria-hidden': 'true'}, means.map((x, i) => { const y = Math.max(1.2, 14 * Math.sqrt(x / most)); return h('rect', {x: (i * w).toFixed(1), y: (15 - y).toFixed(1), width: Math.max(.8, w - (w > 3 ? 1.2 : .2)).toFixed(1), height: y.toFixed(1), rx: .8, fill: c, opacity: .85}); }));
}
function left() {
  const all = findings();
  put('#hk', 'Kernels by share ', tag(M.run.basis));
  put('#kernels', M.kernels.slice(0, 60).map((k, i) => {
    const mine = all.filter(f => f.kernel === k.name), nf = mine.filter(f => f.type === 'fault').length, na = mine.length - nf;
    return h('button.kern', {'aria-current': i === S.k, data: {kern: i}}, h('i', {css: {background: colour(i)}}), h('span', null, h('span.nm', {title: k.name}, k.name), h('span.pc', null, k.basis ? share(k.share) : '')),
      h('span.sub', null, h('span', null, k.launches ? [`${fmt(k.launches)} × ${k.total_ns ? dur(k.total_ns / k.launches) : '?'}`] : 'not launched', ''), nf ? h('span.mk.bad', {title: many(nf, 'fault')}, '✖' + nf) : null, na ? h('span.mk.adv', {title: many(na, 'remark')}, '◆' + na) : null,
        k.sparkline?.length > 1 ? h('span.sp', {title: `by launch, ${k.sparkline_basis}`}, spark(k.sparkline, colour(i))) : null));
  }), M.kernels.length > 60 ? h('p.empty', null, `${M.kernels.length - 60} further kernels: search for them`) : null,
  !M.kernels.length ? h('p.empty', null, 'No kernel was launched.') : null);
  put('#hf', 'Findings');
  put('#findings', all.slice(0, 40).map(f => h('button.fnd', {title: nameOf(f.key), data: {variant: f.variant ?? '', kernel: f.kernel, key: f.key, fault: f.type === 'fault' ? f.n : ''}},
    h('span.' + (f.type === 'advice' ? 'adv' : f.f.severity === 'error' ? 'bad' : 'warn'), {'aria-hidden': 'true'}, f.type === 'advice' ? '◆' : f.f.severity === 'error' ? '✖' : '▲'),
    h('span.w', null, f.type === 'fault' ? f.f.kind : f.r.kind, h('span.mut', null, ' :' + lineOf(f.key))), h('span.mut', null, f.type === 'fault' ? (M.byFile.get(fileOf(f.key))?.name ?? '').replace(/\.py$/, '') : saved(f.r)))),
  !all.length ? h('p.empty', null, M.run.not_looked_for ? ticked(`None. Not looked for: ${M.run.not_looked_for.join(', ')} (\`--check all\` does).`) : 'None.') : null);
  roof();
}
function roof() {
  const p = V()?.pictures?.find(q => q.kind === 'roofline');
  put('#hr', 'Roofline ', tag(p ? (/, measured/.test(p.caption) ? 'measured' : 'predicted') : ''));
  put('#roof', p ? h('figure', null, picture(p), h('figcaption', null, p.caption)) : h('p.small.mut', null, V()?.costs?.length ? 'Its flops, its bytes, or the ceilings of the GPU are not known.' : ticked('`tkdebug run --mode interpret --advise` predicts what a kernel could reach.')));
  current();
}
const current = () => {
  for (const e of $$('#next button, .fnd')) e.setAttribute('aria-current', e.dataset.key === S.line && (!e.dataset.variant || e.dataset.variant === V()?.key));
};

/* ---- strip of time ---- */
const ROW = 20, HEAD = 18;
function strip() {
  const {tracks, end_ns: end} = M.strip;
  $('#time').hidden = !tracks.length;
  if (!tracks.length) return;
  const [a, b] = S.z, shown = tracks.slice(0, 6), canvas = $('#strip'), height = HEAD + shown.length * (ROW + 4) + 8;
  put('#lab', h('div.row', null, h('span', null, `${dur(a)} – ${dur(b)}`), h('span', null, h('button', {'aria-label': 'zoom out', title: 'zoom out, [', data: {zoom: 1.7}}, '−'), h('button', {'aria-label': 'zoom in', title: 'zoom in, ]', data: {zoom: .6}}, '+'), h('button', {'aria-label': 'all of it', title: 'all of it', data: {zoom: 0}}, '↔'))),
    shown.map(t => { const busy = t.spans.reduce((s, q) => { const part = Math.max(0, Math.min(b, q[0] + q[1]) - Math.max(a, q[0])); return s + (q[1] ? part * q[6] / q[1] : 0); }, 0); return h('div.row.s2', null, h('b', {title: t.name}, t.name), h('span', null, t.basis === 'measured' ? `busy ${Math.round(100 * Math.min(1, busy / (b - a)))} %` : tag(t.basis))); }));
  const ratio = devicePixelRatio || 1, width = canvas.parentElement.clientWidth - (matchMedia('(max-width:760px)').matches ? 0 : 224);
  canvas.style.height = height + 'px'; canvas.width = width * ratio; canvas.height = height * ratio;
  const g = canvas.getContext('2d'), css = getComputedStyle(document.body), probe = h('i', {ns: false}); document.body.append(probe);
  const paint = {}; const col = v => paint[v] ??= (probe.style.color = v, getComputedStyle(probe).color);
  g.scale(ratio, ratio); g.font = '10px ' + css.fontFamily;
  const X = t => (t - a) / (b - a) * width, span = b - a, unit = [1, 2, 5].flatMap(m => [...Array(13)].map((_, e) => m * 10 ** e)).sort((p, q) => p - q).find(s => span / s < width / 90) ?? span;
  g.strokeStyle = col('var(--line)'); g.fillStyle = col('var(--mut)'); g.lineWidth = 1;
  for (let t = Math.ceil(a / unit) * unit; t <= b; t += unit) { g.beginPath(); g.moveTo(X(t), HEAD - 2); g.lineTo(X(t), height); g.stroke(); g.fillText(dur(t).replace('.00', '').replace('.0 ', ' '), X(t) + 3, 11); }
  const faulty = new Set(M.launches.filter(l => l.faults?.length).map(l => l.seq));
  S.boxes = [];
  shown.forEach((t, row) => {
    const y = HEAD + row * (ROW + 4);
    g.fillStyle = col('var(--bg2)'); g.fillRect(0, y, width, ROW);
    for (const q of t.spans) {
      if (q[0] + q[1] < a || q[0] > b) continue;
      if (q[5] > 1) { S.boxes.push([X(q[0]), Math.max(1.2, X(q[0] + q[1]) - X(q[0])), y, q, t]); continue; }
      const x = X(q[0]), w = Math.max(1.2, X(q[0] + q[1]) - x), mine = q[2] >= 0, on = q[4] && q[4] === S.launch;
      g.globalAlpha = mine && q[2] !== S.k ? .62 : 1; g.fillStyle = col(colour(q[2])); g.fillRect(x, y, w, ROW); g.globalAlpha = 1;
      if (!mine && w > 4) { g.save(); g.beginPath(); g.rect(x, y, w, ROW); g.clip(); g.strokeStyle = col('var(--bg2)'); for (let d = x - ROW; d < x + w; d += 5) { g.beginPath(); g.moveTo(d, y + ROW); g.lineTo(d + ROW, y); g.stroke(); } g.restore(); }
      if (faulty.has(q[4])) { g.fillStyle = col('var(--badfill)'); g.fillRect(x, y - 3, Math.max(2.5, w), 2.4); }
      if (on) { g.strokeStyle = col('var(--fg)'); g.lineWidth = 2; g.strokeRect(x, y, w, ROW); g.lineWidth = 1; }
      const name = mine ? M.kernels[q[2]]?.name.replace(/_kernel$/, '') ?? '' : M.strip.names?.[q[3]] ?? '';
      if (w > name.length * 5.6 + 12) { g.fillStyle = !mine ? col('var(--fg)') : [1, 3, 4].includes(q[2]) ? '#10141a' : '#fff'; g.fillText(name, Math.max(x, 0) + 6, y + 13); }
      S.boxes.push([x, w, y, q, t]);
    }
    stacked(g, t.spans, a, b, width, y, k => col(colour(k)));
  });
  if (tracks.length > shown.length) $('#lab').lastChild.title = `and ${many(tracks.length - shown.length, 'more stream')}`;
  probe.remove();
}
/* Spans that stand for several launches overlap: each pixel shows how long each kernel ran in it, one on top of the other. */
function stacked(g, spans, a, b, width, y, paint) {
  const each = (b - a) / width, columns = new Map();
  for (const q of spans) {
    if (q[5] < 2 || q[0] + q[1] < a || q[0] > b) continue;
    const first = Math.max(0, Math.floor((q[0] - a) / each)), last = Math.min(width - 1, Math.floor((q[0] + q[1] - a) / each));
    for (let x = first; x <= last; x++) {
      const part = Math.min(a + (x + 1) * each, q[0] + q[1]) - Math.max(a + x * each, q[0]);
      const column = columns.get(x) ?? columns.set(x, new Map()).get(x);
      column.set(q[2], (column.get(q[2]) ?? 0) + Math.max(0, part) * q[6] / (q[1] || 1));
    }
  }
  for (const [x, column] of columns) {
    let top = y + ROW; const total = [...column.values()].reduce((s, t) => s + t, 0), scale = Math.max(each, total);
    for (const k of [...column.keys()].sort((p, q) => q - p)) { const height = ROW * column.get(k) / scale; g.fillStyle = paint(k); g.fillRect(x, top - height, 1.02, height + .3); top -= height; }
  }
}
const hitStrip = e => { const r = $('#strip').getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top; return S.boxes?.findLast(([bx, w, by]) => x >= bx - 1 && x <= bx + w + 1 && y >= by - 3 && y <= by + ROW); };
function zoom(f, at) {
  const end = M.strip.end_ns || 1;
  if (!f) S.z = [0, end];
  else { let [a, b] = S.z; const c = at ?? (a + b) / 2, least = Math.max(100, end / 1e7); a = c - (c - a) * f; b = c + (b - c) * f; if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; } S.z = [Math.max(0, a), Math.min(end, b)]; }
  strip();
}
function pan(d) { const [a, b] = S.z; d = Math.max(-a, Math.min(M.strip.end_ns - b, d)); S.z = [a + d, b + d]; strip(); }
function pickLaunch(seq) {
  const l = M.launches.find(x => x.seq === seq); if (!l) return;
  S.launch = seq; const at = seek(l.variant, M.kernels[l.kernel]?.name), moved = at && (at[0] !== S.k || at[1] !== S.v);
  const q = M.strip.tracks.flatMap(t => t.spans).find(x => x[4] === seq);
  if (q && (q[0] < S.z[0] || q[0] > S.z[1])) pan(q[0] - (S.z[0] + S.z[1]) / 2);
  if (moved) { [S.k, S.v] = at; S.line = opening(); fresh(); select(S.line, {centre: 1}); } else { strip(); srcbar(); }
}
function stepLaunch(d) { const i = M.launches.findIndex(l => l.seq === S.launch); const l = M.launches[Math.max(0, Math.min(M.launches.length - 1, i + d))]; if (l) pickLaunch(l.seq); }

/* ---- source ---- */
const grid = g => g ? g.filter((x, i) => i === 0 || x > 1).join(' × ') : '';
function srcbar() {
  const k = K(), v = V(); if (!k) return put('#srcbar');
  const l = M.launches.find(x => x.seq === S.launch), g = l?.variant === v?.key ? l.grid : v?.grids?.[0]?.[0], o = v?.resources?.occupancy;
  put('#srcbar', h('span.nm.k', {css: {'border-color': colour(S.k)}}, k.name),
    k.variants.length > 1 ? h('select', {id: 'variant', 'aria-label': 'specialisation'}, k.variants.map((w, i) => h('option', {value: i, selected: i === S.v}, `${w.differs || w.signature || w.key} · ${fmt(w.launches)} ×`))) : null,
    h('span.mut.el', {title: v?.signature}, [l && l.variant === v?.key ? `launch ${l.id}` : '', g ? `${grid(g)} programs` : '', o ? `occupancy ${Math.round(100 * o.warps / o.max_warps)} %` : '', v?.target].filter(Boolean).join(' · ')));
}
function ghead() {
  const heats = V()?.heats ?? [];
  put('#ghead', h('span.bad', {title: 'faults'}, '✖'), h('span.adv', {title: 'advice'}, '◆'), h('span.val', {title: 'watched values'}, '◉'),
    h('span.h', null, heats.length ? h('select', {id: 'heat', 'aria-label': 'heat by'}, heats.map(x => h('option', {value: x, selected: x === S.heat}, HEATS[x][0] + (HEATS[x][1] ? ', ' + HEATS[x][1] : '')))) : h('span', {title: '`run --mode interpret --advise` weighs lines by predicted time, `--stalls` on a GPU by samples'}, 'no heat')), h('span'));
}
const fnOf = key => { const f = M.byFile.get(fileOf(key)); for (let i = lineOf(key) - 1; f && i >= 0; i--) { const m = /^\s*def (\w+)/.exec(f.rows[i] ?? ''); if (m) return m[1]; } return 'a function'; };
function caret(f) {
  const where = f.at && f.of ? `${f.at} is outside of ${f.of}` : f.message;
  const each = f.launches > 1 ? `${fmt(f.count / f.launches)} elements a launch` : `${fmt(f.count)} element${f.count === 1 ? '' : 's'}`;
  return h('div.ann', {'aria-hidden': 'true'}, h('span'), h('span', null, h('span.car', null, ' '.repeat(Math.max(0, f.column - 1)) + '^ '), where + (f.at ? ' · ' + each : '')));
}
function row(key, inlined) {
  const text = textOf(key), l = lineAt(key), fa = faultsAt(key), ad = remarksAt(key), heat = heatOf(key), most = S.most || 1;
  const level = heat ? Math.min(4, Math.floor(5 * Math.sqrt(heat / most) - .001)) : 0, shown = heat ? (heat >= .0095 ? Math.round(100 * heat) : heat >= .001 ? '·' : '') : '';
  const calls = !inlined && l?.calls, un = S.unfold.has(key), bad = fa.some(f => f.severity === 'error' && f.state === 'open');
  const indent = text.length - text.trimStart().length + 4;
  return [h('div.r' + (inlined ? '.in' : '') + (l ? '' : '.quiet'), {role: 'treeitem', id: 'L-' + key, 'aria-level': inlined ? 2 : 1, 'aria-selected': S.line === key, 'aria-expanded': calls ? un : null, data: {key}},
    h('span.g.' + (bad ? 'bad' : 'warn'), null, fa.length ? [bad ? '✖' : '▲', h('span.sr', null, 'fault')] : null), h('span.g.adv', null, ad.length ? ['◆', h('span.sr', null, 'advice')] : null), h('span.g.val', null, l?.watches ? ['◉', h('span.sr', null, 'watched')] : null),
    h('span.heat', null, heat ? h('i', {css: {width: (100 * Math.max(.04, heat / most)).toFixed(1) + '%', background: `var(--h${Math.max(0, level)})`}}) : null), h('span.hn' + (heat / most > .35 ? '.hi' : ''), null, shown, shown ? h('span.sr', null, ' percent,') : null),
    h('span.no', null, h('span.sr', null, 'line '), lineOf(key)), h('span.code', {css: {'--ind': indent + 'ch'}}, py(text), calls ? h('span.un', {title: 'u', data: {un: key}}, `${un ? '−' : '+'} ${fnOf(keyOf(calls[0]))} inlined, ${many(calls.length, 'line')}`) : null)),
  ...fa.filter(f => f.state === 'open').map(caret)];
}
function source() {
  const k = K(); if (!k) { put('#src', h('p.empty', null, M.run.state === 'running' ? 'No kernel has been launched yet.' : 'No kernel was launched, so there is nothing to show here. The Output tab has what the script printed.')); return; }
  const v = V(), f = M.byFile.get(k.file);
  if (!v?.heats?.includes(S.heat)) S.heat = v?.heats?.[0] ?? '';
  S.most = Math.max(1e-9, ...(v?.lines ?? []).map(l => l.heat?.[S.heat] ?? 0));
  $('#facthome').append($('#factp'));
  srcbar(); ghead();
  if (!f) { put('#src', h('p.empty', null, `The source of ${k.name} was not recorded.`)); place(); return; }
  const rows = f.rows, at = n => k.file + ':' + n, out = [];
  let def = k.line; while (def < k.end_line && !/^\s*(async\s+)?def\b/.test(rows[def - 1] ?? '')) def++;
  let end = def; while (end < k.end_line && !/\)\s*(->.*)?:\s*(#.*)?$/.test(rows[end - 1] ?? '')) end++;
  const fold = (a, b, what) => {
    if (b < a) return; const id = k.name + a + '-' + b, here = fileOf(S.line) === k.file && lineOf(S.line) >= a && lineOf(S.line) <= b;
    const within = [...Array(Math.min(b - a + 1, 5000))].some((_, i) => lineAt(at(a + i))?.faults);
    if (S.open.has(id) || here || within) { for (let i = a; i <= Math.min(b, a + 4999); i++) out.push(row(at(i))); } else out.push(h('div.fold', {role: 'treeitem', 'aria-level': 1, 'aria-expanded': 'false', 'aria-selected': 'false', data: {fold: id}}, what));
  };
  fold(1, def - 1, many(def - 1, 'line') + ' above'); out.push(row(at(def)));
  if (end - def > 3) { fold(def + 1, end - 1, many(end - def - 1, 'parameter')); out.push(row(at(end))); } else for (let i = def + 1; i <= end; i++) out.push(row(at(i)));
  const shown = new Set();
  for (let i = end + 1; i <= k.end_line; i++) { out.push(row(at(i))); if (S.unfold.has(at(i))) for (const p of lineAt(at(i))?.calls ?? []) if (!shown.has(keyOf(p))) { shown.add(keyOf(p)); out.push(row(keyOf(p), 1)); } }
  const last = rows.at(-1) === '' ? rows.length - 1 : rows.length;
  fold(k.end_line + 1, last, many(last - k.end_line, 'line') + ' below');
  put('#src', out); place();
}
const rowOf = key => document.getElementById('L-' + key);
function place() {
  const phone = matchMedia('(max-width:760px)').matches, fp = $('#factp'), r = rowOf(S.line);
  if (phone && r) { let a = r; while (a.nextElementSibling?.classList.contains('ann')) a = a.nextElementSibling; a.after(fp); fp.setAttribute('role', 'treeitem'); fp.setAttribute('aria-level', 2); fp.setAttribute('aria-selected', 'false'); fp.removeAttribute('aria-label'); }
  else { $('#facthome').append(fp); fp.setAttribute('role', 'region'); fp.setAttribute('aria-label', 'what is known of the line'); fp.removeAttribute('aria-level'); fp.removeAttribute('aria-selected'); }
}
function select(key, opt = {}) {
  if (!key) { facts(); mark(true); return; }
  const caller = (V()?.lines ?? []).find(l => l.place[0] === K().file && (l.calls ?? []).some(p => keyOf(p) === key));
  if (caller && !rowOf(key)) S.unfold.add(keyOf(caller.place));
  S.line = key; if (!rowOf(key)) source();
  for (const x of $$('#src [aria-selected=true]')) x.setAttribute('aria-selected', 'false');
  const r = rowOf(key);
  if (r) {
    r.setAttribute('aria-selected', 'true'); $('#src').setAttribute('aria-activedescendant', r.id);
    const sc = $('#srcscroll');
    if (opt.centre) sc.scrollTop = r.offsetTop - sc.clientHeight * .45; else if (r.offsetTop < sc.scrollTop + 24) sc.scrollTop = r.offsetTop - 24; else if (r.offsetTop > sc.scrollTop + sc.clientHeight - 40) sc.scrollTop = r.offsetTop - sc.clientHeight + 40;
  }
  place(); facts(); mark(!opt.fromStage); current(); hash();
}
function go(variant, kernel, key) {
  const at = seek(variant, kernel); S.view = 'home';
  if (at && (at[0] !== S.k || at[1] !== S.v)) { [S.k, S.v] = at; S.launch = firstLaunch(); }
  S.line = key || opening(); fresh(); select(S.line, {centre: 1});
}

/* ---- what is known of a line ---- */
const section = (title, how, ...kids) => h('section.f', null, h('h3', null, title, ' ', tag(how)), kids);
const wide = e => (e.classList.add('w'), e);
const bars = (items, total) => items.map(([name, n, text]) => h('div.hb', null, h('span', {title: name}, name), h('i', {css: {width: Math.min(100, 100 * n / (total || 1)) + '%'}}), h('span', null, text ?? share(n / (total || 1)))));
const ticked = text => (text ?? '').split(/`([^`]+)`/).map((part, i) => i % 2 ? h('code', null, part) : part);
const command = text => text ? h('p', null, h('button.btn.mono', {title: 'copy', data: {copy: text}}, text)) : null;
function cause(c) {
  if (!c) return null;
  return [c.got ? h('p', null, 'Got ', h('code', null, c.got), ', expected ', h('code', null, c.expected), '.') : null,
    (c.edits ?? []).length ? h('p', null, c.edits.length === 1 ? 'With this edit the launch agrees. ' : 'With each of these edits the launch agrees. ', tag('fixes it')) : null,
    (c.edits ?? []).slice(0, 4).map(e => h('div.edit', null, h('div.mut', null, nameOf(e.file + ':' + e.line), e.is_in_fp64 ? ' · agrees in fp64; what is left is rounding' : ''), (e.before ?? []).map(t => h('div.del', null, '- ' + t)), (e.after ?? []).map(t => h('div.ins', null, '+ ' + t)))),
    (c.losses ?? []).length ? [h('p', null, 'In fp64 the launch agrees; these lines lose most precision:'), bars(c.losses.map(l => [nameOf(l.file + ':' + l.line), l.share]), 1)] : null,
    c.why ? h('p', null, 'Undecided: ' + c.why) : null, (c.facts ?? []).map(t => h('p.mut', null, t))];
}
function faultSection(f) {
  const verb = {'oob-load': 'is read', 'oob-store': 'is written', 'oob-atomic': 'is changed'}[f.kind];
  const said = f.at && f.of && verb ? [h('code', null, f.at), ` ${verb}, and `, h('code', null, f.tensor), /element/.test(f.of) ? ' has ' : ' is ', f.of, '.'] : ticked(f.message);
  const program = f.program ? `First in program ${f.program.length && f.program.slice(1).some(x => x) ? '(' + f.program.join(', ') + ')' : f.program[0]}` : '';
  const lane = f.lane?.length ? `, element [${f.lane.join(', ')}] of the tile` : '';
  return h('section.f.w.flt' + (f.severity === 'error' ? '' : '.mild'), {'aria-label': 'fault'}, h('h3.' + (f.severity === 'error' ? 'bad' : 'warn'), null, f.severity === 'error' ? '✖ ' : '▲ ', f.kind, ' ', tag(f.basis === 'measured' ? 'on a GPU' : f.basis), f.state !== 'open' ? tag(f.state) : null), h('div.what', null, said),
    (f.pictures ?? []).length ? h('div.pics' + (f.pictures.length > 2 ? '.three' : ''), null, f.pictures.map(figure)) : null, cause(f.cause), f.hint ? h('p.hint', null, ticked(f.hint)) : null,
    h('p.mut.small', null, program, lane, program ? '. ' : '', f.count > 1 || f.launches > 1 ? `${fmt(f.count)} elements in ${many(f.launches, 'launch').replace('launchs', 'launches')}.` : ''),
    (f.calls ?? []).length > 1 ? h('p.small', null, 'Called from ', f.calls.slice(0, -1).reverse().map((p, i) => [i ? ', ' : '', h('button.acc.mono', {data: {key: keyOf(p), variant: f.variant ?? '', kernel: f.kernel}}, nameOf(keyOf(p)))])) : null, command(f.replay));
}
function defSections() {
  const k = K(), v = V(), c = v?.costs?.[0], o = v?.pictures?.find(p => p.kind === 'occupancy'), out = [];
  out.push(c ? section('Bound', 'predicted', h('div.big', null, dur(v.predicted_ns), ' ', h('small', null, `a launch, by ${c.launched_bound || c.bound}`)), bars(Object.entries(c.resources_ns).filter(x => x[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 6), c.predicted_ns)) : section('Bound', '', h('p.mut', null, ticked('Nothing is predicted: `tkdebug run --mode interpret --advise` does, with a GPU or without.'))));
  if (o) out.push(h('section.f', null, h('h3', null, 'Occupancy ', tag('compiled')), h('div.pics', null, figure(o)), h('p.small.mut', null, `${v.resources.registers} registers, ${size((v.resources.static_shared_bytes ?? 0) + (v.resources.dynamic_shared_bytes ?? 0))} shared, spills ${size(v.resources.spill_store_bytes ?? 0)}`)));
  const warps = v?.pictures?.find(p => p.kind === 'warps');
  if (warps) out.push(wide(section('Warps in time', 'timeline', h('figure', null, picture(warps), h('figcaption.mut.small', null, warps.caption)))));
  if (v?.error) out.unshift(wide(section('Did not compile', '', h('p.bad', null, v.error))));
  if (v?.arguments) out.push(wide(section('Arguments of the first launch', '', h('table', null, h('tbody', null, v.arguments.map(a => h('tr', null, h('td', null, h('code', null, a.name)), h('td.mut', null, h('code', null, a.type)), h('td.r0', null, a.shape ? [a.shape.join(' × ') || '()', h('span.mut', null, ` strides ${(a.strides ?? []).join(', ')}`)] : String(a.value ?? '')))))))));
  const lines = (M.model_lines ?? []).filter(m => m.kernel === k.name);
  if (lines.length) out.push(wide(section('Lines of the model that it computes', '', lines.slice(0, 20).map(m => h('p', null, h('code', null, nameOf(keyOf(m.place))), ' ', h('span.mut', null, m.op))))));
  return out;
}
function memory(l) {
  const sum = l.memory.filter(m => m.what !== 'shared').reduce((a, m) => a + 32 * m.requests * m.sectors, 0), narrow = l.memory.find(m => m.width_bytes && m.width_bytes < 8 && m.what !== 'shared');
  return section('Memory', 'interpreted', h('table', null, h('thead', null, h('tr', null, h('th', null, 'a launch'), h('th.r0', null, 'requests'), h('th.r0', null, 'sectors'), h('th.r0', null, 'needed'), h('th.r0', null, 'moved'))), h('tbody', null, l.memory.map(m => m.what === 'shared'
    ? h('tr', null, h('td', null, 'shared'), h('td.r0', null, fmt(m.requests)), h('td.r0', {colspan: 3}, m.conflicts > .5 ? h('span.adv', null, `${(1 + m.conflicts / Math.max(1, m.requests)).toFixed(1)} wavefronts each`) : 'no conflicts'))
    : h('tr', null, h('td', null, m.what, ' ', h('code', null, m.tensor ?? '')), h('td.r0', null, fmt(m.requests)), h('td.r0', null, m.sectors.toFixed(2)), h('td.r0', null, m.needed.toFixed(2)), h('td.r0', null, size(32 * m.requests * m.sectors)))))), narrow ? h('p.adv.small', null, `${narrow.width_bytes} bytes a thread; 16 are possible at most`) : null, sum ? null : null);
}
function chart(w) {
  const rounds = w.rounds ?? [], H = 92, W = 250, left = 40, right = W - 8;
  const finite = rounds.flatMap(r => [r[1], r[2]]).filter(x => typeof x === 'number');
  if (rounds.length < 2 || !finite.length) return h('p', null, rounds.length ? `min ${num(rounds[0][1])}, mean ${num(rounds[0][3])}, max ${num(rounds[0][2])}` : '');
  const lo = Math.min(...finite), hi = Math.max(...finite), X = i => left + i / (rounds.length - 1) * (right - left), Y = y => typeof y === 'number' ? 8 + (hi - y) / ((hi - lo) || 1) * (H - 16) : H / 2;
  const ln = (n, role, dash) => h('polyline.L-' + role + (dash ? '.L-dash' : ''), {points: rounds.map((r, i) => `${X(i).toFixed(1)},${Y(r[n]).toFixed(1)}`).join(' ')});
  const bad = rounds.map((r, i) => r[4] || r[5] ? h('circle.D-bad', {cx: X(i), cy: H - 6, r: 3}, h('title', null, `round ${r[0]}: ${fmt(r[4])} NaN, ${fmt(r[5])} Inf`)) : null);
  return h('svg.pic', {viewBox: `0 0 ${W} ${H + 14}`, role: 'img', 'aria-label': `${w.name} by round: from ${num(lo)} to ${num(hi)}`}, ln(1, 'meant'), ln(2, 'meant'), ln(3, 'frame', 1), bad, h('text.T-frame', {x: left - 4, y: 12, 'text-anchor': 'end'}, num(hi)), h('text.T-frame', {x: left - 4, y: H - 6, 'text-anchor': 'end'}, num(lo)), h('text.T-frame', {x: left, y: H + 11}, rounds[0][0]), h('text.T-frame', {x: right, y: H + 11, 'text-anchor': 'end'}, `round ${rounds.at(-1)[0]}`));
}
function histogram(w) {
  const hs = w.histogram ?? []; if (hs.length < 2) return null;
  const lo = hs[0][0], n = hs.at(-1)[0] - lo + 1, most = Math.max(...hs.map(x => x[1])), bw = 230 / n, H = 92;
  return h('svg.pic', {viewBox: `0 0 250 ${H + 14}`, role: 'img', 'aria-label': `${w.name}: magnitudes by power of two`}, hs.map(([e, c]) => h('rect.B-meant', {x: (10 + (e - lo) * bw).toFixed(1), y: (H - (H - 8) * c / most).toFixed(1), width: Math.max(1, bw - 1.5).toFixed(1), height: ((H - 8) * c / most).toFixed(1), opacity: .8}, h('title', null, `2^${e}: ${fmt(c)}`))), [hs[0][0], hs.at(-1)[0]].map((e, i) => h('text.T-frame', {x: i ? 240 : 10, y: H + 11, 'text-anchor': i ? 'end' : 'start'}, `2^${e}`)));
}
const watchSection = w => wide(section('Values of ' + w.name, M.run.mode?.includes('native') ? 'measured' : 'interpreted', h('p.mut.small', null, h('code', null, w.type), ` · ${many(w.values, 'value')}${w.lost ? `, ${fmt(w.lost)} were lost` : ''}`, w.first_nan ? h('span.bad', null, ` · first NaN or Inf in launch ${w.first_nan[0]}, program (${w.first_nan[1].join(', ')}), round ${w.first_nan[2]}`) : ' · no NaN, no Inf'), h('div.pics.chart', null, h('figure', null, chart(w), h('figcaption', null, 'Least, mean and greatest by round, over all programs.')), histogram(w) ? h('figure', null, histogram(w), h('figcaption', null, 'Magnitudes in the last round.')) : null)));
function elsewhere(key) {
  if (!COMPARED) return null;
  const other = RUNS[1 - S.run], text = textOf(key).trim(), k = other.kernels.find(q => q.name === K().name);
  if (!k || !text) return null;
  for (const v of k.variants) for (const l of v.lines ?? []) if ((other.byFile.get(l.place[0])?.rows[l.place[1] - 1] ?? '').trim() === text && l.heat?.[S.heat]) return wide(section('In the other run', '', h('p', null, `${share(l.heat[S.heat])} of its kernel's ${HEATS[S.heat][0]}, ${share(ownHeat(key))} here; `, h('code', null, `${other.byFile.get(l.place[0]).name}:${l.place[1]}`))));
  return null;
}
function facts() {
  const key = S.line, l = lineAt(key) ?? {}, fa = faultsAt(key), ad = remarksAt(key), c = l.code, calls = l.calls ?? [], heat = ownHeat(key), isDef = K() && fileOf(key) === K().file && /^\s*def\b/.test(textOf(key)) && lineOf(key) >= K().line && lineOf(key) <= K().end_line;
  if (!key) { put('#factbar'); put('#facts'); return; }
  const moved = (l.memory ?? []).filter(m => m.what !== 'shared').reduce((a, m) => a + 32 * m.requests * m.sectors, 0);
  const sums = [fa.length && h('span.bad', null, '✖ ' + (fa.length > 1 ? many(fa.length, 'fault') : 'fault')), heat && h('span', null, h('b', null, share(heat)), ` of ${HEATS[S.heat][0]}`), c?.instructions && h('span', null, h('b', null, fmt(c.instructions)), ' SASS'), moved && h('span', null, h('b', null, size(moved)), ' moved'), ad.length && h('span.adv', null, '◆ ' + many(ad.length, 'remark')), l.watches && h('span.val', null, '◉ watched')].filter(Boolean);
  put('#factbar', h('span.nm', null, nameOf(key)), h('span.facs', null, sums.length ? sums : h('code.code', null, py(textOf(key).trim()))));
  const out = [...fa.map(faultSection)];
  if (isDef) out.push(...defSections());
  if (l.stalls) { const total = Object.values(l.stalls).reduce((a, b) => a + b, 0); out.push(section('Where warps wait', 'sampled', h('div.big', null, share(l.heat?.stalls ?? 0), ' ', h('small', null, "of the kernel's samples")), bars(Object.entries(l.stalls).slice(0, 5).map(([a, b]) => [a.replaceAll('_', ' '), b]), total))); }
  else if (heat && !isDef) out.push(section('Share of the kernel', HEATS[S.heat][1], h('div.big', null, share(heat), ' ', h('small', null, `of its ${HEATS[S.heat][0]}`)), bars((V().heats ?? []).map(x => [HEATS[x][0] + (HEATS[x][1] ? ', ' + HEATS[x][1] : ''), l.heat?.[x] ?? 0]), 1), S.heat === 'predicted' && V().predicted_ns ? h('p.mut.small', null, `${dur(heat * V().predicted_ns)} of ${dur(V().predicted_ns)}`) : null));
  if (l.memory) out.push(memory(l));
  if (c) out.push(section('Instructions', 'compiled', h('div.chips', null, Object.entries(c.kinds ?? {}).map(([a, b]) => h('span.chip', null, h('b', null, fmt(b)), ' ' + a.replaceAll('-', ' '))), c.inlined ? h('span.chip', null, h('b', null, fmt(c.inlined)), ' in calls') : null, Object.entries(c.widths ?? {}).map(([a, b]) => h('span.chip', null, h('b', null, fmt(b)), ' × ' + a.split(', ')[0].replaceAll('-', ' ') + ' of ' + a.split(', ')[1] + ' bit'))), h('p.mut.small', null, [c.live_registers && `${c.live_registers} registers live at most`, c.spilled_values && `${many(c.spilled_values, 'value')} spilled`, c.executed && `${fmt(c.executed)} executed by warps in a launch`].filter(Boolean).join(' · '))));
  out.push(...(l.watches ?? []).map(watchSection), elsewhere(key));
  out.push(...ad.map(r => wide(section('◆ ' + r.kind.replaceAll('-', ' '), 'predicted', h('p', null, ticked(r.message)), r.gain ? h('p.mut.small', null, `${num(+r.speedup.toFixed(2))}× as fast; saves ${saved(r)}`) : null))));
  if (calls.length && !S.unfold.has(key)) out.push(wide(section('Inlined here', '', h('p', null, h('button.acc', {data: {un: key}}, `${fnOf(keyOf(calls[0]))}, ${many(calls.length, 'line')}: unfold`)))));
  out.push(isDef ? null : layouts(key));
  const passes = code()?.passes, ps = l.passes ?? [];
  if (ps.length) out.push(wide(section('What passes did', 'compiled', ps.slice(0, 40).map(p => h('div.pass', null, h('span.mut', null, p.number), h('span', null, passes?.[p.number]?.name ?? ''), h('span', {title: p.rule}, `${p.count > 1 ? p.count + ' × ' : ''}${p.kind}`), h('span.mono', null, p.what, p.detail ? h('span.mut', null, ' ' + p.detail) : null))))));
  if (!out.filter(Boolean).length) out.push(wide(section('Nothing runs at this line', '', h('p.mut', null, ticked('It is no part of the kernel, was folded at compile time, or the kernel was not compiled: `tkdebug run --target sm_90a` compiles it, too.')))));
  put('#facts', out);
}

/* Layouts that the line's rows of GPU IR name. */
function layouts(key) {
  const c = code(), s = c?.stages?.find(q => q.name === 'gpu-ir'); if (!s || !c.layouts) return null;
  const names = new Set(); s.text.forEach((t, i) => { if (s.chains[i] >= 0 && c.chains[s.chains[i]].some(p => keyOf(p) === key)) for (const m of t.matchAll(/#(\w+)/g)) names.add(m[1]); });
  const found = c.layouts.filter(l => names.has(l.name));
  return found.length ? wide(section('Layouts', 'compiled', h('div.pics', null, found.slice(0, 4).map(l => h('figure', null, picture(l.picture), h('figcaption', null, h('b', null, '#' + l.name + '. '), l.picture.caption)))))) : null;
}

/* ---- stages ---- */
let chains = [], texts = [];
function stage() {
  const c = code(), stages = c?.stages ?? [];
  if (CODES[S.run] && !stages.some(s => stageId(s) === S.stage)) S.stage = stages.length ? stageId(stages.at(-1)) : '';
  chains = (c?.chains ?? []).map(x => x.map(keyOf));
  const s = stages.find(q => stageId(q) === S.stage);
  if (!s) { put('#ir', h('p.empty', null, CODES[S.run] ? ticked('Not compiled. `tkdebug run --target sm_90a` compiles it, too, without a GPU.') : 'unpacking …')); put('#stages'); put('#mini'); put('#stgnote'); texts = []; return; }
  const sass = S.stage === 'sass', out = [];
  $('#ir').className = 'ir' + (s.registers ? '' : ' no-g'); texts = s.text;
  for (let i = 0; i < s.text.length; i += 250) out.push(h('section', null, s.text.slice(i, i + 250).map((t, j) => h('div.i', {data: {c: s.chains[i + j], n: i + j}}, h('span.a', null, sass ? s.numbers[i + j].toString(16).padStart(4, '0') : s.numbers[i + j]), h('span.gr', null, s.registers?.[i + j] ?? ''), h('span', null, ir(t, S.stage))))));
  put('#ir', out); mark(true);
}
const stageId = s => s.title.includes(',') || s.name !== 'tile-ir' ? s.name : 'tile-ir';
const rowsOf = () => $$('#ir .i');
/* Rows are in sections that are laid out when they come into view: what is known of a place before that is an estimate. */
function intoView(r, above) { const box = $('#irscroll'); for (let i = 0; i < 3; i++) box.scrollTop += r.getBoundingClientRect().top - box.getBoundingClientRect().top - above; }
function mark(scroll) {
  const stages = code()?.stages ?? [], rows = rowsOf(), ok = chains.map(c => c.includes(S.line)), marks = []; let first = -1, best = -1, most = 0;
  put('#stages', stages.map((s, i) => h('button', {role: 'tab', 'aria-selected': S.stage === stageId(s), tabindex: S.stage === stageId(s) ? 0 : -1, title: `${s.title} (${i + 1})`, data: {stage: stageId(s)}}, STAGES[s.name] ?? s.name, h('sup', null, lineAt(S.line)?.rows?.[s.name] ?? ''))));
  const on = rows.map((r, i) => { const c = +r.dataset.c, is = c >= 0 && ok[c]; r.classList.toggle('on', is); if (is && first < 0) first = i; return is; });
  on.forEach((is, i) => { if (is && marks.length < 400) marks.push(h('i', {css: {top: (100 * i / rows.length).toFixed(2) + '%', height: Math.max(.2, 100 / rows.length).toFixed(2) + '%'}})); });
  put('#mini', marks);
  if (scroll && first >= 0) { for (let i = first; i < rows.length; i++) { if (!on[i]) continue; let c = 0; for (let j = i; j < i + 14 && j < rows.length; j++) c += on[j]; if (c > most) { most = c; best = i; } } intoView(rows[Math.max(0, best - 2)], 3); }
  const s = stages.find(q => stageId(q) === S.stage);
  put('#stgnote', s ? (s.registers ? 'address · live registers' : s.title.includes(',') ? s.title.split(', ').slice(1).join(', ') : '') : '');
}
function hover(key) {
  for (const x of $$('.lk')) x.classList.remove('lk');
  if (!key) return; rowOf(key)?.classList.add('lk'); if (key === S.line) return;
  const ok = chains.map(c => c.includes(key)); for (const r of rowsOf()) { const c = +r.dataset.c; if (c >= 0 && ok[c]) r.classList.add('lk'); }
}

/* ---- tables ---- */
function grid_(head, rows, name) {
  const sort = S.sort[name];
  if (sort) rows = [...rows].sort((a, b) => { const x = a.by?.[sort.n] ?? '', y = b.by?.[sort.n] ?? ''; return (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y))) * sort.d; });
  return h('table', null, h('thead', null, h('tr', null, head.map(([t, c, sortable], i) => h('th' + (c ? '.' + c : ''), {'aria-sort': sort?.n === i ? (sort.d > 0 ? 'ascending' : 'descending') : null, scope: 'col'}, sortable ? h('button', {data: {sort: name, n: i}}, t) : t)))), h('tbody', null, rows.map(r => h('tr', {data: r.data ?? {}, tabindex: r.data?.go ? 0 : null}, r.cells.map((c, i) => h('td' + (head[i][1] ? '.' + head[i][1] : ''), null, c))))));
}
const swatch = k => h('i.sw', {css: {background: colour(k)}});
/* Lines of kernels of both runs whose share differs by a percentage point or more, found by their text. */
function moved_() {
  const heats = ['stalls', 'timeline', 'predicted'], rows = [];
  for (const k of RUNS[0].kernels) {
    const other = RUNS[1].kernels.find(q => q.name === k.name), [v, w] = [k.variants[0], other?.variants[0]], by = v && w && heats.find(x => v.heats?.includes(x) && w.heats?.includes(x));
    if (!by) continue;
    const shares = (run, variant) => { const found = new Map(); for (const l of variant.lines ?? []) { const text = (run.byFile.get(l.place[0])?.rows[l.place[1] - 1] ?? '').trim(); if (text) found.set(text, [(found.get(text)?.[0] ?? 0) + (l.heat?.[by] ?? 0), l.place]); } return found; };
    const after = shares(RUNS[0], v), before = shares(RUNS[1], w);
    for (const text of new Set([...after.keys(), ...before.keys()])) { const x = before.get(text)?.[0] ?? 0, y = after.get(text)?.[0] ?? 0; if (Math.abs(x - y) >= .01) rows.push([k, text, before.get(text), after.get(text), x, y, by]); }
  }
  rows.sort((p, q) => Math.abs(q[4] - q[5]) - Math.abs(p[4] - p[5]));
  const bar = x => [h('span.hn', null, share(x) + ' '), h('i.hbar', {css: {width: Math.round(60 * x) + 'px'}})];
  return rows.length ? [h('h2', null, 'Lines whose share changed'), grid_([['kernel'], ['line'], ['before'], ['after'], ['', 'wide']].map((c, i) => i === 4 ? ['source', 'wide'] : c), rows.slice(0, 40).map(([k, text, b, a, x, y, by]) => ({data: {go: 1, kernel: k.name, variant: '', key: a ? keyOf(a[1]) : ''}, cells: [[h('code', null, k.name), ' ', tag(HEATS[by][1])], h('code', null, a ? nameOf(keyOf(a[1])) : 'gone'), b ? bar(x) : h('span.mut', null, 'new'), a ? bar(y) : h('span.mut', null, 'gone'), h('code.code', null, py(text))]})), 'moved')] : null;
}
const VIEWS = {
  launches() {
    const rows = M.launches.slice(0, 2000).map(l => ({by: [l.id, M.kernels[l.kernel]?.name, l.grid[0] * l.grid[1] * l.grid[2], l.duration_ns ?? 0, 0], data: {go: 1, launch: l.seq}, cells: [l.id, [swatch(l.kernel), h('code', null, M.kernels[l.kernel]?.name ?? '?'), l.scopes ? h('span.mut', null, ' ' + l.scopes.join(' > ')) : null, l.error ? h('span.bad', null, ' ' + l.error) : null, l.faults ? h('span.bad', null, ' ✖') : null], grid(l.grid), l.duration_ns == null ? h('span.mut', null, 'no time') : [dur(l.duration_ns), ' ', tag(l.basis)], l.rank ?? '', l.process]}));
    return [h('p.notes', null, (M.left_out ?? []).find(t => t.includes('launches are listed')) ?? ''), grid_([['#', 'r0', 1], ['kernel', '', 1], ['grid', 'r0', 1], ['time', 'r0', 1], ['rank', 'r0'], ['process', 'r0']], rows, 'launches')];
  },
  faults() {
    return [M.run.not_looked_for ? h('p.notes', null, ticked(`Not looked for: ${M.run.not_looked_for.join(', ')}. \`tkdebug run --check all\` looks for them.`)) : null, grid_([['kind', '', 1], ['line', '', 1], ['kernel', '', 1], ['what', 'wide'], ['times', 'r0', 1], ['launches', 'r0', 1], ['state', '', 1]], M.faults.map(f => ({by: [f.kind, f.place ? nameOf(keyOf(f.place)) : '', f.kernel, '', f.count, f.launches, f.state], data: {go: 1, variant: f.variant ?? '', kernel: f.kernel, key: f.place ? keyOf(f.place) : ''}, cells: [h('span.' + (f.severity === 'error' ? 'bad' : 'warn'), null, (f.severity === 'error' ? '✖ ' : '▲ ') + f.kind), f.place ? h('code', null, nameOf(keyOf(f.place))) : '', h('code', null, f.kernel), f.at && f.of ? [h('code', null, f.at), ' of ' + f.of] : ticked(f.message), fmt(f.count), fmt(f.launches), f.state]})), 'faults')];
  },
  advice() {
    return [grid_([['saves', 'r0', 1], ['faster', 'r0', 1], ['line', '', 1], ['kind', '', 1], ['why', 'wide']], M.remarks.map(r => ({by: [r.gain, r.speedup, nameOf(keyOf(r.place)), r.kind], data: {go: 1, variant: r.variant ?? '', kernel: r.kernel, key: keyOf(r.place)}, cells: [r.gain ? saved(r) : '', r.speedup > 1 ? r.speedup.toFixed(2) + ' ×' : '', h('code', null, nameOf(keyOf(r.place))), h('span.adv', null, '◆ ' + r.kind), ticked(r.message)]})), 'advice')];
  },
  passes() {
    const passes = code()?.passes ?? [], changed = passes.filter(p => p.is_changed).length;
    return [h('p.notes', null, `${K().name}${V().differs ? ', ' + V().differs : ''}: ${changed} of ${passes.length} passes changed something. `, code()?.note ?? ''), passes.filter(p => p.is_changed).map(p => h('details', null, h('summary', null, h('span.mut', null, p.number), h('span', null, p.name, p.error ? h('span.bad', null, ' failed') : null), h('span.mut', null, dur(p.time_ns)), h('span', null, p.number ? p.summary : `${fmt(p.ops)} ops`)), p.error ? h('p.bad', null, p.error) : null, p.changes ? h('pre', null, p.changes.join('\n')) : null, p.diff ? h('pre', {tabindex: 0}, p.diff.map(t => h('div' + (t[0] === '+' ? '.ins' : t[0] === '-' ? '.del' : t[0] === '@' ? '.hunk' : ''), null, t || ' '))) : null))];
  },
  values() { return [h('h2', null, 'Watched values'), ...(V()?.lines ?? []).filter(l => l.watches).flatMap(l => l.watches.map(w => h('div.facts', null, h('p', null, h('button.acc.mono', {data: {key: keyOf(l.place), variant: V().key, kernel: K().name}}, nameOf(keyOf(l.place)))), watchSection(w))))]; },
  others() {
    return [M.others?.length ? [h('h2', null, 'Others on the GPU ', tag('measured')), grid_([['name', '', 1], ['kind', '', 1], ['count', 'r0', 1], ['total', 'r0', 1]], M.others.map(o => ({by: [o.name, o.kind, o.count, o.total_ns], cells: [h('code', null, o.name), o.kind, fmt(o.count), dur(o.total_ns)]})), 'others')] : null, M.model_lines?.length ? [h('h2', null, 'Lines of the model'), grid_([['kernel', '', 1], ['line', '', 1], ['op', '', 1]], M.model_lines.slice(0, 1000).map(m => ({by: [m.kernel, nameOf(keyOf(m.place)), m.op], cells: [h('code', null, m.kernel), h('code', null, nameOf(keyOf(m.place))), m.op]})), 'lines')] : null];
  },
  output() { return [(M.left_out ?? []).map(t => h('p.notes', null, 'left out: ' + t)), M.output ? h('pre', null, M.output.replace(/\x1b\[[0-9;]*[A-Za-z]/g, '')) : h('p.empty', null, 'The script printed nothing, or its output was not recorded.')]; },
  compare() {
    const C = COMPARED, time = x => x == null ? '' : dur(x), faults = (title, list, c) => list?.length ? [h('h2', null, title), grid_([['kind'], ['line'], ['kernel'], ['what', 'wide']], list.map(f => ({cells: [h('span.' + c, null, '✖ ' + f.kind), f.file ? h('code', null, `${f.file.split('/').at(-1)}:${f.line}`) : '', h('code', null, f.kernel), ticked(f.message)]})), title)] : null;
    const judged = C.kernels?.some(k => k.verdict !== 'unknown'), word = {slower: 'bad', faster: 'ok', same: 'mut', unknown: 'mut'};
    return [h('h2', null, 'Kernels, before and after'), grid_([['kernel', '', 1], ['launches', 'r0'], ['mean before', 'r0', 1], ['mean after', 'r0', 1], ['after / before', 'r0', 1], ...(judged ? [['verdict']] : [])], (C.kernels ?? []).map(k => ({by: [k.kernel, 0, k.before_ns ?? 0, k.after_ns ?? 0, k.ratio ?? 0], data: {go: 1, kernel: k.kernel, variant: '', key: ''}, cells: [h('code', null, k.kernel), `${fmt(k.launches[0])}, ${fmt(k.launches[1])}`, time(k.before_ns), time(k.after_ns), k.ratio ? k.ratio.toFixed(2) + ' ×' : '', ...(judged ? [h('span.' + word[k.verdict], null, k.verdict === 'unknown' ? 'not known' : k.verdict)] : [])]})), 'compare'), h('p.notes', null, C.note), moved_(), faults('New faults', C.new_faults, 'bad'), faults('Faults that are gone', C.gone_faults, 'ok'), h('p.notes', null, `${many(C.kept_faults ?? 0, 'fault')} in both.`)];
  },
};
function table() {
  const v = S.view; $('#tables').hidden = v === 'home'; for (const x of $$('.home')) x.hidden = v !== 'home';
  if (v !== 'home') put('#tables', VIEWS[v]());
}

/* ---- search ---- */
let hi = 0, found = [];
function search(q) {
  const H = $('#hits'), I = $('#q');
  if (!q) { H.hidden = true; I.setAttribute('aria-expanded', 'false'); I.removeAttribute('aria-activedescendant'); return; }
  const s = q.toLowerCase(); found = [];
  const has = t => (t ?? '').toLowerCase().includes(s), room = n => found.length < n;
  M.kernels.forEach(k => { if (room(6) && has(k.name)) found.push(['kernel', k.name, k.basis ? share(k.share) : '', () => go('', k.name, '')]); });
  M.faults.forEach(f => { if (room(10) && f.place && has(f.kind + f.message + f.tensor)) found.push(['fault', `${nameOf(keyOf(f.place))} ${f.kind}`, '✖', () => go(f.variant, f.kernel, keyOf(f.place))]); });
  M.remarks.forEach(r => { if (room(13) && has(r.kind + r.message)) found.push(['advice', `${nameOf(keyOf(r.place))} ${r.kind}`, '◆', () => go(r.variant, r.kernel, keyOf(r.place))]); });
  for (const k of M.kernels) { const f = M.byFile.get(k.file); for (let i = k.line; f && i <= k.end_line && room(20); i++) if (has(f.rows[i - 1])) found.push([':' + i, f.rows[i - 1].trim(), f.name, () => go('', k.name, k.file + ':' + i)]); }
  texts.forEach((t, i) => { if (room(24) && has(t)) found.push([STAGES[S.stage] ?? S.stage, t.trim(), '', () => { const r = rowsOf()[i]; intoView(r, 60); r.classList.add('lk'); }]); });
  hi = 0; put('#hits', found.length ? found.map((f, i) => h('div', {role: 'option', id: 'h' + i, 'aria-selected': i === 0, data: {h: i}}, h('span.mut', null, f[0]), h('code', null, f[1]), h('span.mut', null, f[2]))) : h('div', {role: 'option', 'aria-selected': 'false'}, h('span'), h('span.mut', null, 'nothing found')));
  H.hidden = false; I.setAttribute('aria-expanded', 'true');
}
function hitAt(d) { const a = $$('#hits [data-h]'); if (!a.length) return; a[hi]?.setAttribute('aria-selected', 'false'); hi = (hi + d + a.length) % a.length; a[hi].setAttribute('aria-selected', 'true'); a[hi].scrollIntoView({block: 'nearest'}); $('#q').setAttribute('aria-activedescendant', 'h' + hi); }
function take(i) { const f = found[i]; $('#q').value = ''; search(''); $('#src').focus({preventScroll: true}); f?.[3](); }

/* ---- everything ---- */
function fresh() { header(); left(); strip(); table(); if (S.view === 'home') { source(); stage(); facts(); } }
function hash() { if (K()) history.replaceState(null, '', '#' + [K().name, S.v, nameOf(S.line), S.stage].map(encodeURIComponent).join('/')); }
function step(d) { const rows = $$('#src .r'), i = rows.findIndex(x => x.dataset.key === S.line), r = rows[Math.max(0, Math.min(rows.length - 1, i + d))]; if (r) select(r.dataset.key); }
function finding(d) { const seen = new Set(), all = findings().filter(f => { const id = f.variant + f.key; return !seen.has(id) && seen.add(id); }); if (!all.length) return; const i = all.findIndex(f => f.key === S.line && (!f.variant || f.variant === V()?.key)), f = all[(i + d + all.length) % all.length]; go(f.variant, f.kernel, f.key); }
function theme(to) { const r = document.documentElement, dark = r.dataset.theme ? r.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme:dark)').matches; r.dataset.theme = to ?? (dark ? 'light' : 'dark'); $('#theme').setAttribute('aria-pressed', !dark); if (M) strip(); }
function toKernel(i) { S.k = (i + M.kernels.length) % M.kernels.length; S.v = 0; S.launch = firstLaunch(); S.view = 'home'; S.line = opening(); fresh(); select(S.line, {centre: 1}); }
function toView(view) { S.view = view; fresh(); if (view === 'home') select(S.line, {centre: 1}); }
function toRun(i) { S.run = i; M = RUNS[i]; S.k = S.v = 0; S.z = [0, M.strip.end_ns || 1]; S.unfold.clear(); begin(); }
function begin() {
  const first = M.steps.find(s => s.variant), at = first ? seek(first.variant, '') : null;
  [S.k, S.v] = at ?? [0, 0]; S.heat = V()?.heats?.[0] ?? ''; S.line = first?.place && at ? keyOf(first.place) : opening(); S.launch = firstLaunch();
  fresh(); if (S.view === 'home') select(S.line, {centre: 1});
}
const unfold = key => { S.unfold.has(key) ? S.unfold.delete(key) : S.unfold.add(key); source(); select(S.line); };
const KEYS = [['j k', 'next, previous line'], ['n p', 'next, previous finding'], ['J K', 'next, previous kernel'], ['u', 'unfold an inlined function'], ['1 – 5', 'stages'], ['g', 'back to the first finding'], ['[ ]', 'zoom out, in'], ['← →', 'previous, next launch'], ['/', 'search everything'], ['t', 'light or dark'], ['Esc', 'back to the source'], ['?', 'these keys']];
function clicked(e) {
  const c = s => e.target.closest(s); let x;
  if ((x = c('[data-un]'))) return unfold(x.dataset.un);
  if ((x = c('[data-fold]'))) { S.open.add(x.dataset.fold); source(); select(S.line); return; }
  if ((x = c('[data-sort]'))) { const n = +x.dataset.n, old = S.sort[x.dataset.sort]; S.sort[x.dataset.sort] = {n, d: old?.n === n ? -old.d : -1}; table(); return; }
  if ((x = c('[data-run]'))) return toRun(+x.dataset.run);
  if ((x = c('[data-copy]'))) { navigator.clipboard?.writeText(x.dataset.copy).then(() => { const old = x.textContent; x.textContent = 'copied'; setTimeout(() => { x.textContent = old; }, 900); }); return; }
  if ((x = c('#src .r'))) return select(x.dataset.key);
  if ((x = c('#ir .i'))) { const ch = chains[+x.dataset.c]; if (ch) select([...ch].reverse().find(q => rowOf(q)) ?? ch.at(-1), {fromStage: 1}); return; }
  if ((x = c('[data-kern]'))) return toKernel(+x.dataset.kern);
  if ((x = c('[data-launch]'))) { S.view = 'home'; S.launch = 0; const l = +x.dataset.launch; fresh(); pickLaunch(l); select(S.line, {centre: 1}); return; }
  if ((x = c('[data-key]'))) return go(x.dataset.variant, x.dataset.kernel, x.dataset.key);
  if ((x = c('[data-view]'))) return toView(x.dataset.view);
  if ((x = c('[data-stage]'))) { S.stage = x.dataset.stage; stage(); hash(); return; }
  if ((x = c('[data-zoom]'))) return zoom(+x.dataset.zoom);
  if ((x = c('[data-h]'))) return take(+x.dataset.h);
  if (c('#theme')) theme(); if (c('#help')) $('#keys').showModal();
  if (!c('.find')) search('');
}
function pressed(e) {
  if (e.target.id === 'q') { const f = {Escape: () => { e.target.value = ''; search(''); e.target.blur(); }, ArrowDown: () => hitAt(1), ArrowUp: () => hitAt(-1), Enter: () => take(hi)}[e.key]; if (f) { f(); e.preventDefault(); } return; }
  if ((e.ctrlKey || e.metaKey) && /^[pk]$/i.test(e.key)) { e.preventDefault(); $('#q').focus(); return; }
  if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey || $('dialog[open]')) return;
  if (e.target.getAttribute('role') === 'tab' && /Arrow(Left|Right)/.test(e.key)) { const list = e.target.parentElement, a = $$('[role=tab]', list), n = (a.indexOf(e.target) + (e.key === 'ArrowRight' ? 1 : -1) + a.length) % a.length; a[n].click(); $$('[role=tab]', list)[n]?.focus(); e.preventDefault(); return; }
  if (e.target.id === 'split' && /Arrow(Up|Down)/.test(e.key)) { split(+$('#split').getAttribute('aria-valuenow') + (e.key === 'ArrowDown' ? 4 : -4)); e.preventDefault(); return; }
  if (e.key === 'Enter' && e.target.matches('tr[data-go]')) { e.target.click(); return; }
  const f = {j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), n: () => finding(1), p: () => finding(-1), J: () => toKernel(S.k + 1), K: () => toKernel(S.k - 1), '[': () => zoom(1.5), ']': () => zoom(.66), ArrowLeft: () => stepLaunch(-1), ArrowRight: () => stepLaunch(1), '/': () => $('#q').focus(), '?': () => $('#keys').showModal(), t: () => theme(), u: () => lineAt(S.line)?.calls && unfold(S.line), g: () => { S.view = 'home'; begin(); }, Escape: () => toView('home')}[e.key];
  if (f && M.kernels.length) { if (/^Arrow(Up|Down)/.test(e.key) && S.view !== 'home') return; f(); e.preventDefault(); return; }
  if (/^[1-9]$/.test(e.key)) { const s = code()?.stages?.[+e.key - 1]; if (s) { S.stage = stageId(s); stage(); hash(); e.preventDefault(); } }
}
function split(percent) { const p = Math.round(Math.max(20, Math.min(85, percent))); $('#right').style.setProperty('--split', p + '%'); $('#split').setAttribute('aria-valuenow', p); }
function overStrip(e) {
  const hit = hitStrip(e), tip = $('#tip'); if (!hit) { tip.hidden = true; return; }
  const [, , , q, t] = hit, k = M.kernels[q[2]], l = M.launches.find(x => x.seq === q[4]);
  tip.replaceChildren(h('b', null, k ? k.name : M.strip.names?.[q[3]] || 'others'), q[5] > 1 ? ` ${fmt(q[5])} launches` : l ? ` launch ${l.id}` : '', h('br'), `${dur(q[1])} at ${dur(q[0])}, ${t.name} (${t.basis})`, l ? [h('br'), `${grid(l.grid)} programs`] : '');
  if (Array.isArray(tip.lastChild)) tip.lastChild.remove();
  tip.hidden = false; tip.style.left = Math.min(innerWidth - tip.offsetWidth - 8, e.clientX + 12) + 'px'; tip.style.top = e.clientY + 16 + 'px';
}
function wire() {
  document.body.append(h('svg', {width: 0, height: 0, 'aria-hidden': 'true', css: {position: 'absolute'}}, h('pattern', {id: 'hatch', width: 4, height: 4, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'}, h('rect', {width: 4, height: 4}), h('path', {d: 'M1 0v4'}))));
  document.addEventListener('click', clicked); addEventListener('keydown', pressed);
  document.addEventListener('change', e => { if (e.target.id === 'variant') { S.v = +e.target.value; S.launch = firstLaunch(); fresh(); select(S.line); } if (e.target.id === 'heat') { S.heat = e.target.value; source(); select(S.line); } });
  $('#src').addEventListener('mouseover', e => hover(e.target.closest('.r')?.dataset.key)); $('#src').addEventListener('mouseleave', () => hover());
  $('#ir').addEventListener('mouseover', e => { const r = e.target.closest('.i'), ch = r && chains[+r.dataset.c]; hover(ch && ([...ch].reverse().find(q => rowOf(q)) ?? ch[0])); }); $('#ir').addEventListener('mouseleave', () => hover());
  const cv = $('#strip'); let drag = null;
  cv.addEventListener('wheel', e => { e.preventDefault(); const r = cv.getBoundingClientRect(), t = S.z[0] + (e.clientX - r.left) / r.width * (S.z[1] - S.z[0]); if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan(e.deltaX / r.width * (S.z[1] - S.z[0])); else zoom(Math.exp(e.deltaY * .0022), t); }, {passive: false});
  cv.addEventListener('pointerdown', e => { drag = {x: e.clientX, moved: 0}; });
  addEventListener('pointerup', e => { if (drag && drag.moved < 4 && e.target === cv) { const q = hitStrip(e)?.[3]; if (q?.[4]) { S.view = 'home'; pickLaunch(q[4]); select(S.line, {centre: 1}); } else if (q && q[2] >= 0) toKernel(q[2]); } drag = null; });
  cv.addEventListener('pointermove', e => { if (drag) { const d = e.clientX - drag.x; if (Math.abs(d) + drag.moved > 3) { drag.moved += Math.abs(d); pan(-d / cv.clientWidth * (S.z[1] - S.z[0])); drag.x = e.clientX; $('#tip').hidden = true; return; } } overStrip(e); });
  cv.addEventListener('pointerleave', () => { $('#tip').hidden = true; });
  const sp = $('#split'); sp.addEventListener('pointerdown', e => { sp.setPointerCapture(e.pointerId); const move = ev => { const r = $('#right').getBoundingClientRect(); split(100 * (ev.clientY - r.top) / r.height); }; sp.addEventListener('pointermove', move); sp.addEventListener('pointerup', () => sp.removeEventListener('pointermove', move), {once: true}); });
  $('#q').addEventListener('input', e => search(e.target.value));
  addEventListener('resize', () => { strip(); place(); });
  put('#keys', h('h3', null, 'Keys'), h('dl', null, KEYS.map(([k, t]) => [h('dt', null, k.split(' ').map(x => x === '–' ? ' – ' : h('kbd', null, x))), h('dd', null, t)])), h('form', {method: 'dialog'}, h('button.btn', null, 'close')));
}
const block = id => unpacked(document.getElementById(id)?.textContent);
async function unpacked(text) {
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text.trim()), c => c.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text());
}
/* `#KERNEL/VARIANT/FILE:LINE/STAGE`, as the address bar has it. */
function fromHash() {
  const [kernel, v, name, stage] = location.hash.slice(1).split('/').map(decodeURIComponent), k = M.kernels.findIndex(q => q.name === kernel);
  if (k < 0 || !kernel) return false;
  S.k = k; S.v = Math.min(+v || 0, M.kernels[k].variants.length - 1); S.stage = stage ?? '';
  const file = M.files.find(f => f.name === name?.slice(0, name.lastIndexOf(':')));
  S.line = file ? file.file + ':' + lineOf(name) : opening(); S.launch = firstLaunch(); fresh(); if (S.view === 'home') select(S.line, {centre: 1});
  return true;
}
/* ---- a page that is served while its session grows (`tkdebug view --web`) ---- */
/* Shows newer records, and leaves the reader where they are. */
function renew(model, texts) {
  const kernel = K()?.name, variant = V()?.key, stage_ = S.stage, all = S.z[0] <= 0 && S.z[1] >= (M.strip.end_ns || 1), at = document.activeElement;
  const scrolled = $$('.scroll, .left, .tables').map(e => [e, e.scrollTop, e.scrollLeft]);
  M = RUNS[0] = adopt(model); CODES[0] = texts ?? {};
  if (all) S.z = [0, M.strip.end_ns || 1];
  document.title = `${M.run.script}: ${M.verdict.text}, tkdebug`;
  const k = kernel ? M.kernels.findIndex(q => q.name === kernel) : -1;
  if (k < 0) begin();
  else { S.k = k; S.v = Math.max(0, M.kernels[k].variants.findIndex(v => v.key === variant)); S.stage = stage_; S.line ||= opening(); fresh(); hash(); }
  for (const [e, top, left] of scrolled) { e.scrollTop = top; e.scrollLeft = left; }
  if (at && !at.isConnected) $$(at.tagName).find(e => e.id === at.id && JSON.stringify(e.dataset) === JSON.stringify(at.dataset))?.focus({preventScroll: true});
}
let troubled = '';
function trouble(text) { if (troubled !== text) put('#trouble', ticked(text)); $('#trouble').hidden = !text; troubled = text; }
async function follow() {
  const ask = what => fetch(location.pathname.replace(/\/?$/, '/') + what, {cache: 'no-store'}).then(r => r.ok ? r.json() : Promise.reject(r.status));
  for (let seen = document.body.dataset.version, wait = 1000; ; await new Promise(r => setTimeout(r, wait))) {
    wait = M.run.state === 'ended' ? 5000 : 1000;
    if (document.hidden || getSelection().type === 'Range') continue;
    const since = performance.now();
    try {
      let now = await ask('state');
      if (now.version && now.version !== seen) {
        now = await ask('data');
        if (now.model) { renew(await unpacked(now.model), await unpacked(now.code)); seen = document.body.dataset.version = now.version; }
      }
      trouble(now.problem ? `${now.problem}. Shown is what was read before.` : '');
    } catch (e) { wait = 5000; trouble('`tkdebug view --web` has ended: nothing newer is shown.'); }
    wait = Math.max(wait, 3 * (performance.now() - since));
  }
}
(async () => {
  RUNS = [adopt(await block('model'))];
  const before = await block('before'); if (before) RUNS.push(adopt(before));
  COMPARED = await block('compared'); M = RUNS[0]; S.z = [0, M.strip.end_ns || 1];
  const q = new URLSearchParams(location.search); if (q.get('theme')) document.documentElement.dataset.theme = q.get('theme');
  if (VIEWS[q.get('view')]) S.view = q.get('view'); else if (COMPARED && !location.hash) S.view = 'compare';
  wire(); if (!fromHash()) begin();
  CODES = [await block('code') ?? {}, await block('before-code') ?? {}];
  header(); if (S.view === 'home') { stage(); select(S.line, {centre: 1}); } else table();
  document.body.dataset.ready = '1';
  if (document.body.dataset.version) follow();
})();
