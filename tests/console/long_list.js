// Serves a list of 10,000 ConfigMaps inside the page: a server would need minutes to create them. `sendEvents(rate)`
// sends so many events per second, `sendEvent(type, number, data)` one.
(() => {
  const COUNT = 10_000;
  const originalFetch = window.fetch;
  const encoder = new TextEncoder();
  const columns = ["Name", "Data", "Age"].map((name) => ({
    name,
    type: "string",
    format: name === "Name" ? "name" : "",
    priority: 0,
  }));
  let version = 1;
  let stream = null;
  let timer = 0;

  const row = (number, data) => {
    const name = `row-${String(number).padStart(5, "0")}`;
    const creationTimestamp = new Date(1_700_000_000_000 + number * 1000).toISOString();
    const metadata = {
      name,
      namespace: "default",
      uid: `uid-${number}`,
      resourceVersion: String(++version),
      creationTimestamp,
      labels: { group: `g${number % 7}` },
    };
    return { cells: [name, data, "5m"], object: { metadata } };
  };
  const respond = (body) => new Response(body, { status: 200 });

  window.fetch = async (path, options) => {
    const url = new URL(path, location.href);
    if (!url.pathname.endsWith("/configmaps")) return originalFetch(path, options);
    if (url.searchParams.has("watch")) {
      return respond(
        new ReadableStream({
          start(controller) {
            stream = controller;
          },
        }),
      );
    }
    const first = Number(url.searchParams.get("continue") ?? 0);
    const rows = Array.from({ length: 500 }, (_, index) => row(first + index, String((first + index) % 13)));
    const metadata = { resourceVersion: String(version), continue: first + 500 < COUNT ? String(first + 500) : "" };
    return respond(JSON.stringify({ kind: "Table", metadata, columnDefinitions: columns, rows }));
  };

  window.sendEvent = (type, number, data) =>
    stream.enqueue(
      encoder.encode(`${JSON.stringify({ type, object: { kind: "Table", rows: [row(number, data)] } })}\n`),
    );
  window.sendEvents = (rate) => {
    clearInterval(timer);
    let sent = 0;
    const send = () => {
      for (let each = 0; each < rate / 50; each++) window.sendEvent("MODIFIED", (sent++ * 7919) % COUNT, "99");
    };
    if (rate) timer = setInterval(send, 20);
  };
})();
