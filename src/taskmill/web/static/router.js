// The address is the state: "#/tasks?filter=state:failed&sort=-id". It is a fragment, so the page works below any path.

class Route {
  constructor(name, id, params) {
    this.name = name;
    this.id = id;
    this.params = params;
  }

  get(name, otherwise = "") {
    return this.params.get(name) ?? otherwise;
  }
}

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name = "", id = null] = path.split("/", 2);
  return new Route(name || "overview", id === null ? null : decodeURIComponent(id), new URLSearchParams(query));
}

/** Return the address of a view. Empty parameters are left out. */
export function href(name, params = {}, id = null) {
  const query = new URLSearchParams();
  for (const [key,
    value] of Object.entries(params)) if (value !== "" && value !== null && value !== undefined) query.set(key, value);
  // ":" and "/" may stand as they are in a fragment, and filters are full of them.
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2F", "/");
  return `#/${name}${id === null ? "" : `/${encodeURIComponent(id)}`}${text ? `?${text}` : ""}`;
}

export function go(address) {
  location.hash = address;
}

/** Change parameters of the present view; `replace` leaves no step in the history of the browser. */
export function change(changes, { replace = false } = {}) {
  const route = current();
  const address = href(route.name, { ...Object.fromEntries(route.params), ...changes }, route.id);
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}
