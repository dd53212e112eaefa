// The control API.

export class Refused extends Error {}

export async function post(path, body) {
  const answer = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const json = await answer.json();
  if (!answer.ok) throw new Refused(json.error);
  return json;
}

// null = nothing has changed (204).
export async function get(path, query = {}) {
  const answer = await fetch(`/api/${path}?${new URLSearchParams(query)}`, { cache: "no-store" });
  if (answer.status === 204) return null;
  const json = await answer.json();
  if (!answer.ok) throw new Refused(json.error);
  return json;
}
