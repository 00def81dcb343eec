// What translated Python functions need: whole numbers are BigInt and exact, floats are Numbers.
const py = (() => {
  const isInt = (x) => typeof x === "bigint" || typeof x === "boolean";
  const int = (x) => (typeof x === "boolean" ? BigInt(x) : x);
  const float = (x) => Number(x);
  const numbers = (a, b) => (isInt(a) && isInt(b) ? [int(a), int(b)] : [float(a), float(b)]);
  const fail = (text) => { throw new Error(text); };
  const iter = (x) => (x instanceof Map ? [...x.keys()] : x);
  const truth = (x) => {
    if (x === null || x === undefined) return false;
    if (Array.isArray(x)) return x.length > 0;
    if (x instanceof Map) return x.size > 0;
    return Boolean(x);
  };
  const floordiv = (a, b) => {
    const [x, y] = numbers(a, b);
    if (typeof x !== "bigint") return Math.floor(x / y);
    const q = x / y;
    return x % y !== 0n && (x < 0n) !== (y < 0n) ? q - 1n : q;
  };
  const whole = (x, how) => (isInt(x) ? int(x) : Number.isFinite(x) ? BigInt(how(x)) : fail("cannot convert float infinity or NaN to integer"));
  const evenly = (x) => {
    const low = Math.floor(x), rest = x - low;
    if (rest !== 0.5) return Math.round(x);
    return low % 2 === 0 ? low : low + 1;
  };
  const eq = (a, b) => {
    if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => eq(x, b[i]));
    const number = (x) => isInt(x) || typeof x === "number";
    return number(a) && number(b) ? int(a) == int(b) : a === b;  // 1n == 1 is wanted
  };
  const less = (a, b) => {
    if (!Array.isArray(a)) return int(a) < int(b);
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (!eq(a[i], b[i])) return less(a[i], b[i]);
    return a.length < b.length;
  };
  const by = (key) => (a, b) => (less(key(a), key(b)) ? -1 : less(key(b), key(a)) ? 1 : 0);
  const commas = (text) => text.replace(/^(-?\d+)/, (d) => d.replace(/\B(?=(\d{3})+$)/g, ","));
  const general = (x, digits) => {  // %g
    if (x === 0) return "0";
    if (!Number.isFinite(x)) return x > 0 ? "inf" : x < 0 ? "-inf" : "nan";
    const power = Number(x.toExponential(digits - 1).split("e")[1]);
    const plain = (t) => (t.includes(".") ? t.replace(/\.?0+$/, "") : t);
    if (power >= -4 && power < digits) return plain(x.toFixed(Math.max(0, digits - 1 - power)));
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    const size = String(Math.abs(Number(exponent))).padStart(2, "0");
    return `${plain(mantissa)}e${Number(exponent) < 0 ? "-" : "+"}${size}`;
  };
  const str = (x) => {
    if (x === null || x === undefined) return "None";
    if (typeof x === "boolean") return x ? "True" : "False";
    if (typeof x === "number") return Number.isInteger(x) && Math.abs(x) < 1e16 ? x.toFixed(1) : general(x, 17);
    return String(x);
  };
  const format = (x, spec, how) => {
    if (how === "r" && typeof x === "string") return `'${x}'`;
    const found = /^(,?)(?:\.(\d+))?([a-z]?)$/.exec(spec) || fail(`format ${spec}`);
    const [, comma, digits, kind] = found;
    let text;
    if (kind === "f") text = float(x).toFixed(Number(digits ?? 6));
    else if (kind === "g") text = general(float(x), Number(digits ?? 6));
    else if (kind === "e") text = float(x).toExponential(Number(digits ?? 6)).replace(/e([+-])(\d)$/, "e$10$2");
    else if (kind === "" && digits === undefined) text = str(x);
    else fail(`format ${spec}`);
    return comma ? commas(text) : text;
  };
  const def = (f, names) => { f.names = names; return f; };
  const call = (f, args, words) => {
    const all = [...args];
    for (const [name, value] of words) {
      const at = (f.names || fail(`${f} takes no names`)).indexOf(name);
      if (at < 0) fail(`no argument ${name}`);
      all[at] = value;
    }
    return f(...Array.from(all));
  };
  const attr = (x, name) => {
    if (x === null || x === undefined) fail(`None has no attribute ${name}`);
    if (name in Object(x)) return x[name];
    return fail(`no attribute ${name}`);
  };
  const strings = {
    join: (s, items) => iter(items).join(s),
    replace: (s, a, b) => s.replaceAll(a, b),
    split: (s, by) => s.split(by),
    startswith: (s, a) => s.startsWith(a),
  };
  const method = (x, name, args, words) => {
    if (typeof x === "string") return strings[name](x, ...args);
    if (isInt(x) && name === "bit_length") { const v = int(x) < 0n ? -int(x) : int(x); return v === 0n ? 0n : BigInt(v.toString(2).length); }
    if (x instanceof Map) {
      if (name === "get") return x.has(args[0]) ? x.get(args[0]) : args[1] ?? null;
      if (name === "items") return [...x.entries()];
      if (name === "values") return [...x.values()];
      if (name === "keys") return [...x.keys()];
    }
    if (Array.isArray(x) && name === "append") { x.push(args[0]); return null; }
    const f = attr(x, name);
    return words.length ? call(f, args, words) : f(...args);
  };
  const dataclass = (name, fields, methods, getters) => {
    const kind = {};
    for (const [key, f] of Object.entries(getters)) Object.defineProperty(kind, key, { get() { return f(this); } });
    for (const [key, f] of Object.entries(methods))
      Object.defineProperty(kind, key, { get() { return def((...args) => f(this, ...args), f.names.slice(1)); } });
    const names = fields.map(([field]) => field);
    const make = (...values) => {
      const made = Object.create(kind);
      fields.forEach(([field, byDefault], i) => {
        const given = values[i] === undefined ? (byDefault || (() => fail(`${name}: ${field} missing`)))() : values[i];
        Object.defineProperty(made, field, { value: given, writable: true, enumerable: true });
      });
      if (methods.__post_init__) made.__post_init__();
      return made;
    };
    Object.assign(make, { names, kind, title: name });
    kind.type = make;
    return make;
  };
  const exception = (title) => Object.assign((text) => Object.assign(new Error(text), { name: title, python: true }), { title });
  const isinstance = (x, kinds) => [].concat(kinds).some((k) => {
    if (k === api.int) return isInt(x);
    if (k === api.bool) return typeof x === "boolean";
    if (k === api.float) return typeof x === "number";
    if (k === api.str) return typeof x === "string";
    return x !== null && typeof x === "object" && x.type === k;
  });
  const best = (sign) => def((...args) => {
    const key = typeof args.at(-1) === "function" ? args.pop() : (x) => x;
    const items = args.length === 1 ? [...iter(args[0])] : args;
    return items.reduce((a, b) => ((sign < 0 ? less(key(b), key(a)) : less(key(a), key(b))) ? b : a));
  });
  const ordered = (f) => Object.assign((...args) => f(...args), { names: null });
  const api = {
    truth, iter, eq, floordiv, format, def, attr, method, dataclass, exception, isinstance, str,
    ne: (a, b) => !eq(a, b), lt: (a, b) => less(a, b), gt: (a, b) => less(b, a),
    le: (a, b) => int(a) <= int(b), ge: (a, b) => int(a) >= int(b),
    is: (a, b) => (a ?? null) === (b ?? null), isnt: (a, b) => (a ?? null) !== (b ?? null),
    isin: (a, b) => (typeof b === "string" ? b.includes(a) : b instanceof Map ? b.has(a) : [...b].some((x) => eq(x, a))),
    notin: (a, b) => !api.isin(a, b),
    add: (a, b) => { if (typeof a === "string") return a + b; if (Array.isArray(a)) return [...a, ...b]; const [x, y] = numbers(a, b); return x + y; },
    sub: (a, b) => { const [x, y] = numbers(a, b); return x - y; },
    mul: (a, b) => { const [x, y] = numbers(a, b); return x * y; },
    div: (a, b) => float(a) / float(b),
    mod: (a, b) => api.sub(a, api.mul(floordiv(a, b), b)),
    pow: (a, b) => { const [x, y] = numbers(a, b); return typeof x === "bigint" && y < 0n ? Number(x) ** Number(y) : x ** y; },
    or: (a, b) => (a instanceof Map ? new Map([...a, ...b]) : int(a) | int(b)),
    neg: (a) => -int(a), not: (a) => !truth(a),
    either: (...parts) => { let v; for (const p of parts) { v = p(); if (truth(v)) return v; } return v; },
    both: (...parts) => { let v; for (const p of parts) { v = p(); if (!truth(v)) return v; } return v; },
    item: (x, i) => (x instanceof Map ? x.get(i) : Array.isArray(x) || typeof x === "string" ? x.at(Number(i)) : x.__getitem__(i)),
    each: (items, f) => [...iter(items)].flatMap(f),
    map: (pairs) => new Map(pairs), words: (m) => [...m.entries()],
    set: (items = []) => [...items].filter((x, i, all) => all.findIndex((y) => eq(x, y)) === i),
    text: (...parts) => parts.join(""),
    call: (f, args, words) => {
      const key = words.find(([name]) => name === "key" || name === "strict");
      if (key && !f.names?.includes(key[0])) return key[0] === "key" ? f(...args, key[1]) : f(...args);
      return call(f, args, words);
    },
    dispatch: (pairs) => (x) => (pairs.find(([kind]) => x.type === kind) ?? pairs[0])[1](x),
    missing: (what) => new Proxy(() => {}, { get: (_, k) => (k === "names" || typeof k === "symbol" ? undefined : fail(`${what} is not in the page`)), apply: () => fail(`${what} is not in the page`) }),
    untranslated: (what) => new Error(`not translated: ${what}`),
    len: (x) => BigInt(x.size ?? x.length),
    bool: (x) => truth(x), float: (x) => float(x), int: (x) => whole(typeof x === "string" ? Number(x) : x, Math.trunc),
    dict: (x) => new Map(x), min: best(-1), max: best(1),
    sorted: ordered((items, key = (x) => x) => [...iter(items)].sort(by(key))),
    round: (x) => whole(x, evenly),
    range: (a, b) => { const [from, to] = b === undefined ? [0n, a] : [a, b]; const out = []; for (let i = from; i < to; i++) out.push(i); return out; },
    object: { __setattr__: (x, name, value) => { x[name] = value; return null; } },
    vars: (x) => new Map(Object.entries(x)),
    getattr: (x, name, other) => (name in Object(x) ? x[name] : other === undefined ? attr(x, name) : other),
    dataclasses: {
      replace: def((x, ...none) => fail("replace"), ["x"]),
      asdict: (x) => new Map(Object.entries(x)),
    },
    math: {
      log2: (x) => Math.log2(float(x)), log: (x) => Math.log(float(x)), sqrt: (x) => Math.sqrt(float(x)),
      sin: (x) => Math.sin(float(x)),
      hypot: (...x) => Math.hypot(...x.map(float)), pi: Math.PI, e: Math.E,
      ceil: (x) => whole(x, Math.ceil), floor: (x) => whole(x, Math.floor),
      isqrt: (x) => { let r = BigInt(Math.floor(Math.sqrt(float(x)))); while (r * r > x) r--; while ((r + 1n) * (r + 1n) <= x) r++; return r; },
    },
  };
  // replace(item, field=value): a new one of the same class.
  const plainCall = api.call;
  api.call = (f, args, words) => {
    if (f === api.dataclasses.replace) {
      const change = new Map(words), [item] = args;
      return item.type(...item.type.names.map((n) => (change.has(n) ? change.get(n) : item[n])));
    }
    return plainCall(f, args, words);
  };
  return api;
})();
