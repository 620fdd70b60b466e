"""Report formats, one file each; `formats.py` lists them."""
