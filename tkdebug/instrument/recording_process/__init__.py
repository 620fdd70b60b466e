"""Recording in a process of its own, so that the script's process only packs bytes.

`ring` is memory that both share, with a slot of 128 bytes for each native launch, `packing` writes
the functions that fill slots, `channel` is the socket for all else, `client` the script's side, and
`process` the other: it joins, stores, and outlives the script.
"""
