"""A server of a trained model: json over HTTP, and a page to try it in a browser.

config.py        limits of what is asked; torch-free
connections.py   how many connections, and how long each may keep the server waiting (uvicorn)
hosts.py         which hosts and origins are answered
app.py           addresses, errors, figures (Starlette)
requests.py      what a request may say
route.py         what an address is; a family of models registers more (kind "route")
routes.py        the addresses: what is read, computed and answered for a request to each
batching.py      requests that wait together are answered together, within the room for all
page/            the page: HTML, style, what answers look like (draw.js), panels (page.js)
"""
