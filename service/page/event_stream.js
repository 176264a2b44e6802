/** Server-sent events over fetch: EventSource sends no Authorization header. */

/** Read a body as the HTML standard reads an event stream (9.2.6), and hand on each event. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { name: "message", data: [] };
  let id = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return; // what no empty line has ended is no event
      rest += value;
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line !== "") {
          const [, field, text] = /^([^:]*):? ?(.*)$/s.exec(line);
          if (field === "event") event.name = text;
          else if (field === "data") event.data.push(text);
          else if (field === "id") id = text;
        } else {
          if (event.data.length > 0) {
            yield { id, name: event.name, data: JSON.parse(event.data.join("\n")) };
          }
          event = { name: "message", data: [] };
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
