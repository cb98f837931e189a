"""Files and folders in stores of objects: s3://, gs://, az://, https:// and file://, by fsspec.

    paths.py    an address as a path that is read; each protocol is registered as a hub
    store.py    what is asked of a store, again and again until it answers; errors in one line
    copies.py   the cache of this machine, which is bounded: copies of folders, and blocks
    blocks.py   the tokens of a corpus, block by block
    runs.py     run folders: written on this machine and mirrored, continued from the mirror

The core knows an address as a `files.RemotePath`, which the registry's hubs make.
"""
