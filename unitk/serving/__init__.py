"""A server of a trained model: json over HTTP, and a page to try it in a browser.

config.py        limits of what is asked; torch-free
connections.py   how many connections, and how long each may keep the server waiting (uvicorn)
hosts.py         which hosts and origins are answered
app.py           addresses, errors, figures (Starlette)
verbs.py         what may be asked of a model, and what a model can do
requests.py      what a request may say
jobs.py          what is read, computed and answered for a request of each verb
batching.py      requests that wait together are answered together, within the room for all
page/            the page: HTML, style, what answers look like (draw.js), panels (page.js)
"""
