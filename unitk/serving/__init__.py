"""A server of a trained model: json over HTTP, and a page to try it in a browser.

config.py        limits of what is asked; torch-free
connections.py   how many connections, and how long each may keep the server waiting (uvicorn)
hosts.py         which hosts and origins are answered
keys.py          keys without which nobody is answered
figures.py       figures for Prometheus, and a log of requests without texts
app.py           addresses, errors, answers (Starlette)
requests.py      what a request may say
route.py         what an address is; a family of models registers more (kind "route")
routes.py        the addresses: what is read, computed and answered for a request to each
openai/          the addresses of OpenAI's API; only the registry knows them
batching.py      requests that wait together are answered together, within one budget of tokens
groups.py        requests that are computed together, at once or step by step
page/            the page: HTML, style, what answers look like (draw.js), panels (page.js)
"""
