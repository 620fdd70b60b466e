"""Report formats, one file each; `report.RENDERERS` is their registry."""
