// Runs in the page that `make bench-console` measures, before the console's own modules.
(() => {
  // When the first row of a list was on the screen, in milliseconds since the navigation began.
  const look = () => {
    if (document.querySelector(".vtable-body .vtable-row"))
      requestAnimationFrame(() => {
        window.firstRow = performance.now();
      });
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);

  const longTasks = [];
  new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({
    type: "longtask",
  });

  // The times between frames, and tasks over 50 ms, while `eachFrame` is called in every frame.
  window.measureFrames = (seconds, eachFrame = () => {}) =>
    new Promise((resolve) => {
      const intervals = [];
      longTasks.length = 0;
      let last = performance.now();
      const end = last + seconds * 1000;
      const step = (now) => {
        intervals.push(now - last);
        last = now;
        eachFrame();
        if (now < end) requestAnimationFrame(step);
        else setTimeout(() => resolve({ intervals: intervals.slice(1), longTasks: [...longTasks] }), 200);
      };
      requestAnimationFrame(step);
    });

  window.scrollFrames = (seconds, pixels) => {
    const table = document.querySelector(".vtable");
    return window.measureFrames(seconds, () => {
      table.scrollTop = (table.scrollTop + pixels) % (table.scrollHeight - table.clientHeight);
    });
  };

  // Changes of a list of 10,000 rows: one in ten adds an object, and one in ten removes an added one.
  window.sendChanges = (count, perTick) =>
    new Promise((resolve) => {
      let sent = 0;
      const added = [];
      const timer = setInterval(() => {
        for (let each = 0; each < perTick && sent < count; each++, sent++) {
          if (sent % 10 === 3) {
            added.push(100_000 + sent);
            window.sendEvent("ADDED", added.at(-1), "1");
          } else if (sent % 10 === 7 && added.length) window.sendEvent("DELETED", added.shift(), "1");
          else window.sendEvent("MODIFIED", (sent * 7919) % 10_000, String(sent % 100));
        }
        if (sent < count) return;
        clearInterval(timer);
        setTimeout(resolve, 1000);
      }, 20);
    });
})();
