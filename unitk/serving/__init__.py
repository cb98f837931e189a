"""A server of a trained model: json over HTTP, and a page to try it in a browser.

config.py     limits of what is asked; torch-free
verbs.py      what may be asked of a model, and what a model can do
requests.py   what a request may say, and what is answered
batching.py   requests that wait together are answered together
app.py        addresses, errors, figures (Starlette)
page/         the page: HTML, style, what answers look like (draw.js), panels (page.js)
"""
